# packages: xgboost numpy
"""XGBoost: trees that are grown on the device, against those that are grown on the processor."""

import numpy as np
import xgboost
from check import close, finish, part

rng = np.random.default_rng(0)
X = rng.normal(size=(500, 8)).astype(np.float32)


def predictions(device, labels, rounds=20, **more):
    settings = {"device": device, "tree_method": "hist", "max_depth": 4, **more}
    model = xgboost.train(settings, xgboost.DMatrix(X, labels), rounds)
    return model.predict(xgboost.DMatrix(X))


@part
def regression():
    labels = X[:, 0] * 2 + np.sin(X[:, 1])
    found = predictions("cuda", labels)
    close(found, predictions("cpu", labels), 1e-4)
    assert np.sqrt(np.mean((found - labels) ** 2)) < 0.2, "it has not learnt"


@part
def classes():
    labels = np.digitize(X[:, 0] + X[:, 2], [-1.0, 1.0])
    more = {"objective": "multi:softprob", "num_class": 3}
    close(predictions("cuda", labels, 1, **more), predictions("cpu", labels, 1, **more), 1e-4)

    # Splits that gain the same are chosen differently, so later trees are as good and not the same.
    def loss(device):
        return -np.log(predictions(device, labels, **more)[np.arange(len(labels)), labels]).mean()

    close(loss("cuda"), loss("cpu"), 0.1)


finish()
