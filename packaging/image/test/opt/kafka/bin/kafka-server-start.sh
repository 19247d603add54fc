#!/bin/sh
# kafka-server-start of Kafka: [-daemon] server.properties [--override KEY=VALUE]...
highwater="${HIGHWATER:-/usr/bin/highwater}"
if [ "$1" = -daemon ]; then
  echo "kafka-server-start: -daemon is not served; start it in the background of the shell" >&2
  exit 1
fi
count=$#
while [ "$count" -gt 0 ]; do
  argument="$1"
  shift
  count=$((count - 1))
  [ "$argument" = --override ] && argument=--set
  set -- "$@" "$argument"
done
exec "$highwater" start --container /mnt/shared/config "$@"
