"""ClientApp."""

from __future__ import annotations

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from tabular.task import IncomeClassifier, evaluator, load_data, trainer

app = ClientApp()


@app.train()
def train(msg: Message, context: Context) -> Message:
    train_loader, _ = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    net = IncomeClassifier()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    trainer(net, train_loader)
    metrics = {"num-examples": len(train_loader)}
    content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    _, test_loader = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    net = IncomeClassifier()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    loss, accuracy = evaluator(net, test_loader)
    metrics = {"loss": loss, "accuracy": accuracy, "num-examples": len(test_loader)}
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)
