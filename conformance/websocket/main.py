# A conversation with the gateway by the package `websockets`: arguments are the gateway's address and a topic.
import asyncio
import base64
import json
import sys

import websockets

HOST, TOPIC = sys.argv[1], sys.argv[2]
COUNT = 200


def url(kind, rest=""):
    return f"ws://{HOST}/ws/v2/{kind}/persistent/public/default/{TOPIC}{rest}"


async def produce():
    async with websockets.connect(url("producer")) as socket:
        for i in range(COUNT):
            payload = base64.b64encode(f"v{i}".encode()).decode()
            await socket.send(json.dumps({"payload": payload, "key": f"k{i % 7}", "context": str(i)}))
        for i in range(COUNT):
            answer = json.loads(await socket.recv())
            assert answer["result"] == "ok" and answer["context"] == str(i), answer


async def read():
    seen = set()
    async with websockets.connect(url("reader", "?messageId=earliest")) as socket:
        while len(seen) < COUNT:
            message = json.loads(await socket.recv())
            seen.add(base64.b64decode(message["payload"]).decode())
            await socket.send(json.dumps({"messageId": message["messageId"]}))
    assert seen == {f"v{i}" for i in range(COUNT)}


async def consume():
    seen = set()
    while len(seen) < COUNT:
        target = url("consumer", "/python?subscriptionType=Shared&subscriptionInitialPosition=Earliest")
        async with websockets.connect(target) as socket:
            for _ in range(60):
                message = json.loads(await socket.recv())
                seen.add(base64.b64decode(message["payload"]).decode())
                await socket.send(json.dumps({"messageId": message["messageId"]}))
                if len(seen) == COUNT:
                    break
    assert seen == {f"v{i}" for i in range(COUNT)}


async def main():
    for step in (produce, read, consume):
        await asyncio.wait_for(step(), 60)
    print("ok")


asyncio.run(main())
