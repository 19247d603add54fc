#!/bin/sh
# kafka-cluster of Kafka: cluster-id --bootstrap-server HOST:PORT
highwater="${HIGHWATER:-/usr/bin/highwater}"
if [ "$1" != cluster-id ] || { [ "$2" != --bootstrap-server ] && [ "$2" != -b ]; } || [ $# -ne 3 ]; then
  echo "kafka-cluster: write cluster-id --bootstrap-server HOST:PORT" >&2
  exit 1
fi
exec "$highwater" cluster info -b "$3"
