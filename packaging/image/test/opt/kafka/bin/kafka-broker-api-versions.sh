#!/bin/sh
# kafka-broker-api-versions of Kafka, as health checks use it: succeeds if a broker answers.
highwater="${HIGHWATER:-/usr/bin/highwater}"
if [ "$1" != --bootstrap-server ] || [ $# -ne 2 ]; then
  echo "kafka-broker-api-versions: write --bootstrap-server HOST:PORT" >&2
  exit 1
fi
exec "$highwater" cluster info -b "$2"
