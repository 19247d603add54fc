#!/bin/sh
# Starts the broker, where images of Kafka have this script.
exec "${HIGHWATER:-/usr/bin/highwater}" start --container /mnt/shared/config
