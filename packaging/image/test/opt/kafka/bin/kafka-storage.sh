#!/bin/sh
# kafka-storage of Kafka, for start scripts: a broker of this image needs no formatted folder.
highwater="${HIGHWATER:-/usr/bin/highwater}"
command="$1"
case "$command" in
  random-uuid)
    exec "$highwater" cluster id
    ;;
  format)
    id=
    while [ $# -gt 0 ]; do
      case "$1" in
        --add-scram | --add-scram=*)
          echo "kafka-storage: --add-scram is not served: this broker has no logins" >&2
          exit 1
          ;;
        --cluster-id | -t) id="${2:-}" ;;
        --cluster-id=*) id="${1#*=}" ;;
      esac
      shift
    done
    if [ -n "$id" ] && [ "$id" != "${CLUSTER_ID:-${KAFKA_KRAFT_CLUSTER_ID:-}}" ]; then
      # Start scripts of test suites format with random ids, and none of them depends on its id.
      echo "kafka-storage: the cluster does not get the id $id; set CLUSTER_ID to name its id" >&2
    fi
    echo "formatting is not needed"
    ;;
  *)
    echo "kafka-storage: unknown command '$command'; this image has random-uuid and format" >&2
    exit 1
    ;;
esac
