"""fresh: the ClientApp."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fresh.task import load_data
from fresh.task import test as test_fn
from fresh.task import train as train_fn

app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    """Train the model on local data."""
    model = msg.content["arrays"].to_numpy_ndarrays()
    partition_id = context.node_config["partition-id"]
    features, labels = load_data(partition_id)
    model, loss = train_fn(model, features, labels)
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(labels)})
    content = RecordDict({"arrays": ArrayRecord(model), "metrics": metrics})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    """Evaluate the model on local data."""
    model = msg.content["arrays"].to_numpy_ndarrays()
    features, labels = load_data(context.node_config["partition-id"])
    metrics = MetricRecord({"accuracy": test_fn(model, features, labels), "num-examples": len(labels)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=msg)
