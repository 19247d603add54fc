// franz-go: a pure Go client that always speaks the newest versions.
package main

import "highwater/conformance/harness"

func main() {
	harness.Main(harness.Version("github.com/twmb/franz-go"), client{})
}
