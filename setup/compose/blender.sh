#!/bin/sh
# Starts Blender in docker-compose.yml with the files of /etc/blender that are there.
set -eu
files=${BLENDER_FOLDER:-/etc/blender}
set -- --host 0.0.0.0 --port "${BLENDER_PORT:-7170}" --metrics-host 0.0.0.0 --metrics-port "${BLENDER_METRICS_PORT:-9108}"
if [ -f "$files/tls.crt" ]; then
    set -- "$@" --certificate "$files/tls.crt" --key "$files/tls.key"
else
    echo "blender.sh: no $files/tls.crt, so tokens and rows travel in the clear" >&2
fi
if [ -f "$files/rules.toml" ]; then
    set -- "$@" --rules "$files/rules.toml"
fi
exec python -m blender_service "$@"
