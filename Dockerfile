# One image for Spark, Dagster and Blender: the same set-up as on a machine, see setup/install.sh.
FROM python:3.12-slim-bookworm
WORKDIR /headrace
ENV PATH=/headrace/.venv/bin:$PATH \
    JAVA_HOME=/headrace/.venv/share/headrace/java \
    PYTHONUNBUFFERED=1
# The sandbox of executed code (docs/prepare/executed.md says what the container must allow for it).
RUN apt-get update && apt-get install --yes --no-install-recommends bubblewrap && rm -rf /var/lib/apt/lists/*
# First what the installation needs, so that a change of the code does not install everything again.
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY setup setup
COPY headrace headrace
COPY headrace_features headrace_features
COPY blender_service blender_service
COPY spark_jobs spark_jobs
RUN setup/install.sh spark \
    && python -m spark_jobs.lake.session.jars core postgres s3 \
    && rm -rf .uv ~/.cache
COPY . .
# Nothing runs as root. A new volume takes the owner of the folder that it is mounted at, so each of them is made here.
RUN useradd --uid 10001 --create-home headrace \
    && mkdir -p warehouse /var/lib/dagster/storage /var/lib/objects \
    && chown 10001:10001 warehouse /var/lib/dagster /var/lib/dagster/storage /var/lib/objects
USER 10001:10001
