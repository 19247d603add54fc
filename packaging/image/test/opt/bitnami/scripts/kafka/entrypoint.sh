#!/bin/sh
# Runs the command, as the entry point of Bitnami's image.
exec "$@"
