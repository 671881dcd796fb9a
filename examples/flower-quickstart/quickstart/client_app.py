"""The ClientApp of the quickstart."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from quickstart.task import Images, Net, labels, load_data, size
from quickstart.task import test as test_net
from quickstart.task import train as train_net

app = ClientApp()


def _prepare(message: Message, context: Context) -> tuple[Net, Images, Images]:
    torch.manual_seed(0)
    net = Net()
    net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    place, number = (int(context.node_config[key]) for key in ("partition-id", "num-partitions"))
    return net, *load_data(place, number)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model that came on this node's images."""
    net, images, _ = _prepare(message, context)
    lr, epochs = float(context.run_config["lr"]), int(context.run_config["epochs"])
    loss, rows = train_net(net, images, lr, epochs), labels(images)
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(rows)})
    content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Test the model that came on this node's other images."""
    net, _, images = _prepare(message, context)
    metrics = MetricRecord({"accuracy": test_net(net, images), "num-examples": size(images)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=message)
