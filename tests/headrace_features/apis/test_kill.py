"""A fetch that is killed at any moment loses nothing and lands nothing twice."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from headrace.tables.settings import settings_at
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.headrace_features.apis.api_server import Api, records, serving
from tests.headrace_features.apis.conftest import Inbox, api_config, texts_of

FETCH = """
import sys
from pathlib import Path
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.session.catalogue import open_catalogue
from headrace.tables.settings import settings_at
from headrace_features.apis.fetch import fetch_source
from spark_jobs.sources.config.source_config import DocumentsConfig
config = DocumentsConfig.model_validate_json(sys.argv[2])
catalogue = open_catalogue(settings_at(Path(sys.argv[1])))
fetch_source("items", config.source, catalogue, ObjectFolder.of(catalogue, "items"), 30)
"""


def _start(root: Path, config: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", FETCH, str(root), config])


def _kill_storm(style: str, root: Path, kills: int, seed: int) -> None:
    """Kill fetches after a random number of requests and a random moment more, then let one end."""
    luck = random.Random(seed)
    with serving(Api(records(400), style=style, page_size=5, delay_seconds=0.002)) as api:
        config = api_config(api)
        text, inbox = config.model_dump_json(), Inbox(open_catalogue(settings_at(root)))
        documents: list[Any] = []
        for _ in range(kills):
            child, goal = _start(root, text), len(api.asked) + luck.randint(1, 40)
            while len(api.asked) < goal and child.poll() is None:
                time.sleep(0.001)
            time.sleep(luck.random() * 0.01)
            child.kill()
            child.wait()
            if luck.random() < 0.5:  # what is complete may land in between
                landed = inbox.land(config)
                documents += landed[0] if landed is not None else []
        last = _start(root, text)
        assert last.wait() == 0
        landed = inbox.land(config)
        documents += landed[0] if landed is not None else []
        assert texts_of(documents) == {key: [value] for key, value in api.truth.items()}
        if style == "cursor":
            assert len(documents) == 400  # no page landed twice, so no record was even read twice
        parts = list(root.glob("items/landed/.part-*"))
        assert len(parts) <= kills  # what was being written; readers never see it


@pytest.mark.nightly
def test_a_fetch_that_is_killed_goes_on(tmp_path: Path) -> None:
    """A few times; see below for many."""
    _kill_storm("cursor", tmp_path, 2, seed=1)


@pytest.mark.nightly
@pytest.mark.parametrize("style", ["cursor", "page_number", "offset", "link_header"])
def test_a_fetch_that_is_killed_again_and_again_goes_on(style: str, tmp_path: Path) -> None:
    """A hundred times over the styles of paging."""
    _kill_storm(style, tmp_path, 25, seed=2)
