"""Which modules of the client library are imported, and which of them an application can import."""

from __future__ import annotations

import subprocess
import sys

import pytest

CLIENTS = "sorted({'kafka.admin', 'kafka.consumer', 'kafka.producer'} & sys.modules.keys())"


def said(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_clients_of_the_library_are_not_loaded() -> None:
    modules = "twinlog.cluster.client, twinlog.cluster.groups.transactions"
    assert said(f"import sys, {modules}; print({CLIENTS})") == "[]"


@pytest.mark.parametrize("first", ["import twinlog.cluster.client", "import kafka"])
@pytest.mark.parametrize(
    "then",
    [
        "from kafka import KafkaConsumer",
        "import kafka; kafka.KafkaConsumer",
        "from kafka import *; KafkaConsumer",
        "import kafka; kafka.__version__, kafka.errors.KafkaError, kafka.KafkaProducer",
    ],
)
def test_an_application_can_import_them(first: str, then: str) -> None:
    script = f"{first}\nimport twinlog.cluster.client\n{then}\nimport sys; print({CLIENTS})"
    assert said(script) == "['kafka.admin', 'kafka.consumer', 'kafka.producer']"


def test_missing_names_are_import_errors() -> None:
    script = "import twinlog.cluster.client, kafka\nprint(hasattr(kafka, 'nothing'))"
    assert said(script) == "False"
