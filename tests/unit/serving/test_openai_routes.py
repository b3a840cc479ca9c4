"""OpenAI's interface: replies, streams, and requests that are refused."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from tests.unit.generation.tiny_decoder import TinyDecoder, greedy
from tests.unit.serving.doubles import Connection, TinyText
from weft.serving import Catalogue, Limits, create_app
from weft.serving.openai_request import parse_text_request
from weft.support.errors import InvalidInputError, OptionError

HELLO = [{"role": "user", "content": "hello"}]
MODEL = TinyText()
PROMPT = MODEL.chat_prompt(HELLO)
TOKENS = greedy(TinyDecoder(vocab_size=128), PROMPT, 12)
TEXT = MODEL.decode(TOKENS)


@pytest.fixture(scope="module")
def client():
    ending = TinyText(end_tokens=(TOKENS[4],))
    with TestClient(create_app(Catalogue([], {"tiny": TinyText(), "ending": ending}))) as client:
        yield client


def chat(client, **fields):
    return client.post("/v1/chat/completions", json={
        "model": "tiny", "messages": HELLO, "temperature": 0, "max_tokens": 12, **fields})


def events(response) -> list[dict]:
    lines = [line for line in response.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def test_models(client):
    assert [m["id"] for m in client.get("/v1/models").json()["data"]] == ["tiny", "ending"]
    assert client.get("/v1/models/tiny").json()["object"] == "model"
    assert client.get("/v1/models/none").status_code == 404


def test_a_reply(client):
    found = chat(client).json()
    assert found["object"] == "chat.completion"
    assert found["choices"] == [{"index": 0, "logprobs": None, "finish_reason": "length",
                                 "message": {"role": "assistant", "content": TEXT}}]
    assert found["usage"] == {"prompt_tokens": len(PROMPT), "completion_tokens": 12,
                              "total_tokens": len(PROMPT) + 12}


def test_a_stream_has_the_text_of_the_reply(client):
    opening, *parts, last, use = events(chat(client, stream=True,
                                             stream_options={"include_usage": True}))
    assert opening["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(part["choices"][0]["delta"]["content"] for part in parts) == TEXT
    assert len(parts) == 12
    assert last["choices"][0] == {"index": 0, "delta": {}, "logprobs": None,
                                  "finish_reason": "length"}
    assert (use["choices"], use["usage"]["completion_tokens"]) == ([], 12)
    assert {event["object"] for event in (opening, last, use)} == {"chat.completion.chunk"}


def test_completions(client):
    found = client.post("/v1/completions", json={
        "model": "tiny", "prompt": [PROMPT, "other"], "temperature": 0, "max_tokens": 5}).json()
    assert found["object"] == "text_completion"
    assert found["choices"][0]["text"] == TEXT[:5]
    assert [choice["index"] for choice in found["choices"]] == [0, 1]
    streamed = events(client.post("/v1/completions", json={
        "model": "tiny", "prompt": PROMPT, "temperature": 0, "max_tokens": 5, "stream": True}))
    assert "".join(event["choices"][0]["text"] for event in streamed) == TEXT[:5]
    assert len(client.post("/v1/completions", json={
        "model": "tiny", "prompt": PROMPT, "temperature": 0}).json()["choices"][0]["text"]) == 16


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_stop_string_is_not_part_of_the_reply(client, stream):
    found = chat(client, stop=[TEXT[5:7], "never"], stream=stream)
    if stream:
        choices = [event["choices"][0] for event in events(found)]
        text = "".join(choice["delta"].get("content", "") for choice in choices)
        reason = choices[-1]["finish_reason"]
    else:
        (choice,) = found.json()["choices"]
        text, reason = choice["message"]["content"], choice["finish_reason"]
    assert (text, reason) == (TEXT[:TEXT.index(TEXT[5:7])], "stop")


def test_the_end_token_is_not_part_of_the_reply(client):
    (choice,) = chat(client, model="ending").json()["choices"]
    assert choice["message"]["content"] == TEXT[:TOKENS.index(TOKENS[4])]
    assert choice["finish_reason"] == "stop"


def test_a_seed_repeats_the_replies(client):
    def texts(**fields):
        found = chat(client, temperature=1.0, n=3, **fields).json()["choices"]
        return [choice["message"]["content"] for choice in found]

    first = texts(seed=5)
    assert first == texts(seed=5)
    assert len(set(first)) == 3
    assert first != texts(seed=6)
    assert texts() != texts()


def test_parts_of_a_message_and_the_default_length(client):
    parts = [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]
    found = chat(client, messages=[{"role": "user", "content": parts}], max_tokens=None).json()
    assert found["choices"][0]["message"]["content"].startswith(TEXT)
    assert found["usage"]["total_tokens"] == TinyDecoder().capacity


@pytest.mark.parametrize(("fields", "status", "message"), [
    ({"model": "none"}, 404, "unknown model"), ({"model": 3}, 400, "names no model"),
    ({"messages": []}, 400, "'messages'"), ({"messages": [3]}, 400, "role"),
    ({"messages": [{"role": "tool", "content": ""}]}, 400, "role"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "not text"),
    ({"temperature": 3}, 400, "'temperature'"), ({"temperature": "hot"}, 400, "'temperature'"),
    ({"top_p": -1}, 400, "'top_p'"), ({"top_p": 0, "temperature": 1}, 400, "top_p"),
    ({"n": 0}, 400, "'n'"), ({"n": 99}, 400, "'n'"), ({"seed": 1.5}, 400, "'seed'"),
    ({"stop": [""]}, 400, "'stop'"), ({"stop": 3}, 400, "'stop'"),
    ({"stream": "yes"}, 400, "'stream'"), ({"max_tokens": 0}, 400, "'max_tokens'"),
    ({"max_tokens": 64}, 400, "do not fit"),
    ({"messages": [{"role": "user", "content": "x" * 99}]}, 400, "longer than the context"),
    ({"tools": [{}]}, 400, "'tools' is not supported"),
    ({"logprobs": True}, 400, "'logprobs' is not supported"),
    ({"response_format": {"type": "json_object"}}, 400, "have no form"),
], ids=str)
def test_requests_that_are_refused(client, fields, status, message):
    found = chat(client, **fields)
    assert found.status_code == status
    assert message in found.json()["error"]["message"]
    assert found.json()["error"]["type"] in ("invalid_request_error", "not_found_error")


@pytest.mark.parametrize("sent", [b"", b"{", b"[]", b"null", b"\xff\xfe"], ids=repr)
def test_what_is_not_a_request(client, sent):
    assert client.post("/v1/chat/completions", content=sent).status_code == 400
    assert client.post("/v1/completions", content=sent).status_code == 400


FIELDS = ("messages", "prompt", "temperature", "top_p", "top_k", "n", "seed", "stop", "stream",
          "max_tokens", "max_completion_tokens", "stream_options", "min_p", "tools",
          "repetition_penalty")
VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
                      lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
                          st.sampled_from(["role", "content", "type", "text"]), inner, max_size=3),
                      max_leaves=6)


@settings(max_examples=150)
@given(st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4), st.booleans())
def test_no_request_ends_in_another_error(fields, is_chat):
    whole = {"model": "tiny", "messages": HELLO, "prompt": "hello", **fields}
    try:
        found = parse_text_request(whole, MODEL, chat=is_chat)
    except (InvalidInputError, OptionError):
        return
    assert found.max_tokens >= 1
    assert all(found.prompts)


def spoken(connections, decoder_options, **limits) -> Catalogue:
    async def run():
        catalogue = Catalogue([], {"tiny": TinyText(**decoder_options)}, limits=Limits(**limits))
        app = create_app(catalogue)
        await asyncio.wait_for(asyncio.gather(*(c.to(app) for c in connections)), 20)
        scheduler = catalogue.texts["tiny"].scheduler
        assert not scheduler.load
        await catalogue.close()
        return catalogue

    return asyncio.run(run())


def long_stream(**options) -> Connection:
    sent = json.dumps({"model": "tiny", "messages": HELLO, "stream": True}).encode()
    return Connection("/v1/chat/completions", [sent], **options)


def test_a_client_that_leaves_a_stream_frees_its_slot():
    leaving, staying = long_stream(leave_after=4), long_stream()
    spoken([leaving, staying], {"slots": 1, "capacity": 300})
    assert b"[DONE]" not in leaving.body
    assert staying.body.endswith(b"data: [DONE]\n\n")


def test_more_streams_than_the_queue_holds_are_refused():
    streams = [long_stream() for _ in range(5)]
    spoken(streams, {"slots": 1, "capacity": 60}, max_queue=2)
    assert sorted(s.status for s in streams) == [200, 200, 200, 429, 429]
    assert all(s.body.endswith(b"data: [DONE]\n\n") for s in streams if s.status == 200)


def test_a_stream_that_takes_too_long_breaks_off_and_frees_its_slot():
    endless = long_stream()

    async def run():
        text = TinyText(slots=1, capacity=100_000)
        catalogue = Catalogue([], {"tiny": text}, limits=Limits(timeout=0.3))
        with pytest.raises(TimeoutError):
            await endless.to(create_app(catalogue))
        assert not catalogue.texts["tiny"].scheduler.load
        await catalogue.close()

    asyncio.run(run())
    assert endless.status == 200
    assert b"[DONE]" not in endless.body


def test_an_error_of_the_decoder_is_the_end_of_the_stream():
    stream = long_stream()
    spoken([stream], {"fail_after": 5})
    last = stream.body.split(b"\n\n")[-2]
    assert json.loads(last.removeprefix(b"data: "))["error"]["type"] == "server_error"
