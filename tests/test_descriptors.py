"""The committed descriptor sets are what `make descriptors` makes."""

import pytest
from google.protobuf import descriptor_pb2

from tests import descriptors


def files(data):
    """The files of a set, without what another release of protoc may write otherwise."""
    found = descriptor_pb2.FileDescriptorSet.FromString(data).file
    return {file.name: file for file in found if not file.name.startswith("google/")}


def test_there_are_descriptor_sets():
    assert [folder.parent.name for folder in descriptors.FOLDERS if folder.name == "protos"]


@pytest.mark.parametrize("folder", descriptors.FOLDERS, ids=lambda folder: folder.parent.name)
def test_a_descriptor_set_is_what_its_files_say(folder):
    committed = (folder / "messages.binpb").read_bytes()
    assert files(committed) == files(descriptors.compiled(folder))
