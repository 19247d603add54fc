#!/bin/sh
# Test suites of ZooKeeper's time start one beside the broker, which needs none.
echo "ZooKeeper is not needed"
