"""ClientApp."""

from __future__ import annotations

import warnings

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.metrics import log_loss

from sklearnquick.task import UNIQUE_LABELS, create_model, get_model_params, load_data, set_model_params

app = ClientApp()


@app.train()
def train(msg: Message, context: Context) -> Message:
    model = create_model()
    set_model_params(model, msg.content["arrays"].to_numpy_ndarrays())
    x, y, _, _ = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one epoch does not converge
        model.fit(x, y)
    metrics = {
        "num-examples": len(x),
        "train_logloss": log_loss(y, model.predict_proba(x), labels=UNIQUE_LABELS),
        "train_accuracy": model.score(x, y),
    }
    content = RecordDict({"arrays": ArrayRecord(get_model_params(model)), "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    model = create_model()
    set_model_params(model, msg.content["arrays"].to_numpy_ndarrays())
    _, _, x, y = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    metrics = {
        "num-examples": len(x),
        "test_logloss": log_loss(y, model.predict_proba(x), labels=UNIQUE_LABELS),
        "accuracy": model.score(x, y),
    }
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)
