// sarama: the Go client of many exporters and operators, with the versions that it speaks by default.
package main

import "highwater/conformance/harness"

func main() {
	harness.Main(harness.Version("github.com/IBM/sarama"), client{})
}
