import asyncio, aiokafka, highwater_test
async def main():
    with highwater_test.TestBroker(["t"]) as broker:
        rule = {"api": "Produce", "occurrence": {"nth": 2}, "action": {"error": {"code": "MESSAGE_TOO_LARGE"}}}
        broker.set_fault("refused", rule)
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, enable_idempotence=True) as producer:
            for value in (b"a", b"b", b"c", b"d"):
                sent = await asyncio.gather(producer.send_and_wait("t", value), return_exceptions=True)
                print(value.decode(), getattr(sent[0], "offset", type(sent[0]).__name__))
asyncio.run(main())
