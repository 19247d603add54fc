#!/bin/sh
# kafka-topics of Kafka, by the commands of this program: --list, --describe, --create and --delete.
highwater="${HIGHWATER:-/usr/bin/highwater}"
command=
topic=
server=
count=$#
refuse() {
  echo "kafka-topics: $1; for more write: highwater topic --help" >&2
  exit 1
}
# Arguments of the program stay behind those of the script.
while [ "$count" -gt 0 ]; do
  argument="$1"
  shift
  count=$((count - 1))
  case "$argument" in
    --list) command=list ;;
    --describe) command=describe ;;
    --create) command=create ;;
    --delete) command=delete ;;
    --if-not-exists | --if-exists) set -- "$@" "$argument" ;;
    --topic | --bootstrap-server | --partitions | --replication-factor | --config)
      [ "$count" -gt 0 ] || refuse "$argument needs a value"
      case "$argument" in
        --topic) topic="$1" ;;
        --bootstrap-server) server="$1" ;;
        *) set -- "$@" "$argument" "$1" ;;
      esac
      shift
      count=$((count - 1))
      ;;
    *) refuse "unknown argument '$argument'" ;;
  esac
done
[ -n "$server" ] || refuse "--bootstrap-server is missing"
case "$command" in
  "") refuse "write one of --list, --describe, --create and --delete" ;;
  create | delete) [ -n "$topic" ] || refuse "--topic is missing" ;;
esac
[ "$command" = list ] && topic=
exec "$highwater" topic "$command" ${topic:+"$topic"} -b "$server" "$@"
