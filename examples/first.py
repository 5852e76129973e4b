import tidegate as tg


def to_invoice(order: dict[str, float]) -> str:
    return f"order {order['id']}: {order['amount'] * 1.2:.2f} with tax"


invoices = (
    tg.from_kafka("orders", group="billing")
    .map(tg.json)
    .filter(lambda order: order["amount"] > 0)
    .map(to_invoice)
    .sink(print)
)
