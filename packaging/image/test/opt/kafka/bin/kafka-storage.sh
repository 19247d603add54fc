#!/bin/sh
# kafka-storage of Kafka, for start scripts: a broker of this image needs no formatted folder.
highwater="${HIGHWATER:-/usr/bin/highwater}"
command="$1"
case "$command" in
  random-uuid)
    exec "$highwater" cluster id
    ;;
  format)
    for argument in "$@"; do
      if [ "$argument" = --add-scram ]; then
        echo "kafka-storage: --add-scram is not served: this broker has no logins" >&2
        exit 1
      fi
    done
    echo "formatting is not needed"
    ;;
  *)
    echo "kafka-storage: unknown command '$command'; this image has random-uuid and format" >&2
    exit 1
    ;;
esac
