import threading

import pytest
from google.protobuf import descriptor_pool, text_format

from opsetta.exporter.capture.protobuf_messages import MessageTypes
from opsetta.exporter.capture.tensorflow.messages import message_type

SET = ("opsetta.exporter.capture.tensorflow", "protos/messages.binpb", "tensorflow")


def test_a_message_is_read_and_written():
    graph = message_type("GraphDef")()
    graph.node.add(name="x", op="Placeholder").attr["dtype"].type = 1
    assert message_type("GraphDef").FromString(graph.SerializeToString()) == graph
    assert text_format.Parse(text_format.MessageToString(graph), message_type("GraphDef")()) == graph


def test_a_message_type_is_one_class():
    types = MessageTypes(*SET)
    found = []
    threads = [threading.Thread(target=lambda: found.append(types("NodeDef"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1


def test_nothing_is_registered_for_the_process():
    message_type("GraphDef")
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("tensorflow.GraphDef")


def test_two_sets_with_the_same_names_do_not_clash():
    one, other = MessageTypes(*SET), MessageTypes(*SET)
    data = one("NodeDef")(name="x").SerializeToString()
    assert other("NodeDef").FromString(data).name == "x"


def test_an_enumeration():
    assert message_type.enumeration("DataType")["DT_BFLOAT16"] == 14


def test_a_descriptor_set_is_read_when_it_is_needed():
    types = MessageTypes("opsetta.exporter.capture.tensorflow", "protos/not_there.binpb", "tensorflow")
    with pytest.raises(FileNotFoundError):
        types("GraphDef")
