from gymtap.proxy.core.events import Answered, Dropped, Ended, Event, RequestData, RequestDone, ResponseData, Tape


def test_events_come_out_in_the_order_they_went_in() -> None:
    tape = Tape(limit_bytes=100)
    events: list[Event] = [RequestData(1, b"ab"), RequestDone(1, 5), Answered(1, 6, 200, "OK", ()), Ended(1, 7)]

    for event in events:
        tape.put(event)

    assert list(tape.drain()) == events
    assert list(tape.drain()) == []


def test_body_data_beyond_the_limit_is_dropped_and_counted_on_its_exchange() -> None:
    tape = Tape(limit_bytes=10)

    tape.put(RequestData(1, b"x" * 8))
    tape.put(RequestData(1, b"y" * 3))
    tape.put(ResponseData(1, b"z" * 4))
    tape.put(ResponseData(2, b"ok"))
    tape.put(Ended(1, 9))
    tape.put(Ended(2, 9))

    assert list(tape.drain()) == [
        RequestData(1, b"x" * 8),
        ResponseData(2, b"ok"),
        Dropped(1, request_bytes=3, response_bytes=4),
        Ended(1, 9),
        Ended(2, 9),
    ]


def test_an_event_makes_room_when_it_is_taken_and_not_before() -> None:
    tape = Tape(limit_bytes=4)
    tape.put(RequestData(1, b"ab"))
    tape.put(RequestData(1, b"cd"))
    taken = tape.drain()

    assert next(taken) == RequestData(1, b"ab")
    tape.put(RequestData(2, b"ef"))
    tape.put(RequestData(3, b"gh"))

    assert [*taken, *tape.drain()] == [RequestData(1, b"cd"), RequestData(2, b"ef")]
