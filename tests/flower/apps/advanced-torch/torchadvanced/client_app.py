"""ClientApp."""

from __future__ import annotations

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from torchadvanced.task import Net, load_data
from torchadvanced.task import test as test_fn
from torchadvanced.task import train as train_fn

app = ClientApp()
HEAD = "classification-head"


def model_of(msg: Message, context: Context) -> Net:
    """The received model, with the head that this node trained in its last round."""
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    if HEAD in context.state:
        model.fc2.load_state_dict(context.state[HEAD].to_torch_state_dict())
    return model


@app.train()
def train(msg: Message, context: Context) -> Message:
    model = model_of(msg, context)
    x, y, _, _ = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    train_loss = train_fn(model, x, y, context.run_config["local-epochs"], msg.content["config"]["lr"])
    context.state[HEAD] = ArrayRecord(model.fc2.state_dict())
    metrics = {"train_loss": train_loss, "num-examples": len(y)}
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    model = model_of(msg, context)
    _, _, x, y = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    eval_loss, eval_acc = test_fn(model, x, y)
    metrics = {"eval_loss": eval_loss, "eval_acc": eval_acc, "num-examples": len(y)}
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)
