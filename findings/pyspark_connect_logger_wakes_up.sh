#!/usr/bin/env bash
# pyspark-client 4.1.3 with dagster 1.13.27.
# One would guess: without SPARK_CONNECT_LOG_LEVEL PySpark's Connect client logs nothing for the life of the process,
#   which is what its configureLogging says of itself.
# Seen: it is silenced by `logger.disabled = True` alone. A run on a persistent Dagster instance calls dictConfig with
#   disable_existing_loggers=False, also where dagster.yaml, if not empty, configures no logs; that sets `disabled` to False on every
#   logger there is. From then on errors of the client go to standard error as JSON, those that it catches itself too,
#   such as the request at exit to free models, which other Connect servers than Spark's do not know.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "pyspark-client==4.1.3" "dagster==1.13.27"
mkdir "$folder/home"
printf "telemetry:\n  enabled: false\n" >"$folder/home/dagster.yaml"
DAGSTER_HOME="$folder/home" "$folder/venv/bin/python" - <<'PY'
import os

os.environ.pop("SPARK_CONNECT_LOG_LEVEL", None)
from pyspark.sql.connect.logging import logger

before = logger.disabled
import dagster as dg


@dg.op
def nothing():
    pass


@dg.job
def job():
    nothing()


quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
job.execute_in_process(run_config=quiet)
between = logger.disabled
with dg.DagsterInstance.get() as instance:
    job.execute_in_process(instance=instance, run_config=quiet)
print(f"disabled at first: {before}, after a run without an instance: {between}, with one: {logger.disabled}")
raise SystemExit(0 if (before, between, logger.disabled) == (True, True, False) else 1)
PY
