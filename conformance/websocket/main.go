// A conversation with the gateway by github.com/coder/websocket: arguments are the gateway's address and a topic.
package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
)

const count = 200

type message struct {
	MessageID string `json:"messageId,omitempty"`
	Payload   string `json:"payload,omitempty"`
	Key       string `json:"key,omitempty"`
	Context   string `json:"context,omitempty"`
	Result    string `json:"result,omitempty"`
}

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func open(ctx context.Context, kind, rest string) *websocket.Conn {
	url := fmt.Sprintf("ws://%s/ws/v2/%s/persistent/public/default/%s%s", os.Args[1], kind, os.Args[2], rest)
	socket, _, err := websocket.Dial(ctx, url, nil)
	check(err)
	socket.SetReadLimit(1 << 22)
	return socket
}

// Takes messages until all were seen or so many have come, and acknowledges each.
func take(ctx context.Context, socket *websocket.Conn, seen map[string]bool, max int) {
	for i := 0; i < max && len(seen) < count; i++ {
		var got message
		check(wsjson.Read(ctx, socket, &got))
		value, err := base64.StdEncoding.DecodeString(got.Payload)
		check(err)
		seen[string(value)] = true
		check(wsjson.Write(ctx, socket, message{MessageID: got.MessageID}))
	}
	check(socket.Close(websocket.StatusNormalClosure, ""))
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	producer := open(ctx, "producer", "")
	for i := 0; i < count; i++ {
		payload := base64.StdEncoding.EncodeToString([]byte(fmt.Sprintf("v%d", i)))
		check(wsjson.Write(ctx, producer, message{Payload: payload, Key: fmt.Sprintf("k%d", i%7), Context: fmt.Sprint(i)}))
	}
	for i := 0; i < count; i++ {
		var answer message
		check(wsjson.Read(ctx, producer, &answer))
		if answer.Result != "ok" || answer.Context != fmt.Sprint(i) {
			check(fmt.Errorf("answer %d: %+v", i, answer))
		}
	}
	check(producer.Close(websocket.StatusNormalClosure, ""))
	read := map[string]bool{}
	take(ctx, open(ctx, "reader", "?messageId=earliest"), read, 1<<30)
	consumed := map[string]bool{}
	for len(consumed) < count {
		query := "/go?subscriptionType=Shared&subscriptionInitialPosition=Earliest"
		take(ctx, open(ctx, "consumer", query), consumed, 60)
	}
	for _, seen := range []map[string]bool{read, consumed} {
		for i := 0; i < count; i++ {
			if !seen[fmt.Sprintf("v%d", i)] {
				check(fmt.Errorf("v%d is missing", i))
			}
		}
	}
	fmt.Println("ok")
}
