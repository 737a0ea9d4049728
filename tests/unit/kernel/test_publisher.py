"""The iopub socket on the event loop: everything arrives, in order, from whatever thread; subscribers are welcomed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial

import pytest
import zmq
import zmq.asyncio
from jupyter_client.session import Session
from tornado.ioloop import IOLoop

from capkernel.kernel.publisher import Publisher

SECONDS = 30.0


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    made = zmq.Context()
    yield made
    made.destroy(linger=0)


def bound(context: zmq.Context[zmq.Socket[bytes]]) -> tuple[zmq.Socket[bytes], str]:
    socket = context.socket(zmq.XPUB)
    socket.linger = 0
    return socket, f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}"


def subscriber(address: str, topic: bytes = b"") -> zmq.asyncio.Socket:
    socket = zmq.asyncio.Context.instance().socket(zmq.SUB)
    socket.linger = 0
    socket.subscribe(topic)
    socket.connect(address)
    return socket


async def received(socket: zmq.asyncio.Socket, count: int) -> list[list[bytes]]:
    async with asyncio.timeout(SECONDS):
        return [await socket.recv_multipart() for _ in range(count)]


def test_a_subscriber_is_welcomed_and_hears_all_threads_in_order(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    async def session() -> None:
        socket, address = bound(context)
        jupyter = Session(key=b"k")
        publisher = Publisher(socket, jupyter, IOLoop.current())
        listener = subscriber(address)
        [welcome] = await received(listener, 1)
        message = jupyter.deserialize(jupyter.feed_identities(welcome)[1])
        assert message["msg_type"] == "iopub_welcome"
        assert message["content"] == {"subscription": ""}

        numbers = [str(number).encode() for number in range(200)]
        for number in numbers:
            publisher.send_multipart([b"here", number])
        thread = threading.Thread(target=lambda: [publisher.send_multipart([b"there", number]) for number in numbers])
        thread.start()
        heard = await received(listener, 400)
        thread.join()
        for place in (b"here", b"there"):
            assert [number for source, number in heard if source == place] == numbers
        publisher.close()
        publisher.send_multipart([b"here", b"after the end"])  # nobody hears it, and nothing breaks
        publisher.stop()
        listener.close()

    asyncio.run(session())


def test_those_who_come_while_much_is_said_are_welcomed_too(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    async def session() -> None:
        socket, address = bound(context)
        publisher = Publisher(socket, Session(key=b"k"), IOLoop.current())
        listeners = [subscriber(address, topic) for topic in (b"", b"kernel", b"\xff")]
        welcomed = asyncio.ensure_future(received(listeners[1], 1))
        everything = asyncio.ensure_future(received(listeners[0], 1))
        async with asyncio.timeout(SECONDS):
            while not (welcomed.done() and everything.done()):
                publisher.send_multipart([b"other", b"noise"])
                await asyncio.sleep(0)
        assert welcomed.result()[0][0] == b"kernel"
        for listener in listeners:
            listener.close()
        publisher.close()

    asyncio.run(session())


def test_what_is_to_be_said_soon_is_said_after_the_turn_and_never_overtaken(
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    async def session() -> None:
        socket, address = bound(context)
        publisher = Publisher(socket, Session(key=b"k"), IOLoop.current())
        listener = subscriber(address)
        await received(listener, 1)
        said: list[bytes] = []

        def say(text: bytes) -> None:
            said.append(text)
            publisher.send_multipart([text])

        publisher.soon(partial(say, b"busy"))
        publisher.soon(partial(say, b"input"))
        assert said == []
        assert await received(listener, 2) == [[b"busy"], [b"input"]]  # nothing else had to be published for it

        publisher.soon(partial(say, b"busy"))
        publisher.soon(partial(say, b"input"))
        say(b"output")
        assert said[2:] == [b"output", b"busy", b"input"]  # `output` was made before, and waited for the two
        assert await received(listener, 3) == [[b"busy"], [b"input"], [b"output"]]

        publisher.soon(partial(say, b"busy"))
        thread = threading.Thread(target=publisher.send_multipart, args=([b"of a thread"],))
        thread.start()
        thread.join()
        assert await received(listener, 2) == [[b"busy"], [b"of a thread"]]
        publisher.close()
        listener.close()

    asyncio.run(session())
