"""Lists, loops and branches, which are tested as whole graphs."""

from __future__ import annotations

from ..records import Record

RECORDS: list[Record] = []

_LISTS = (
    "EmptyTensorList TensorArrayConcatV3 TensorArrayGatherV3 TensorArrayReadV3 TensorArrayScatterV3 "
    "TensorArraySizeV3 TensorArraySplitV3 TensorArrayV3 TensorArrayWriteV3 TensorListConcat "
    "TensorListConcatLists TensorListConcatV2 TensorListElementShape TensorListFromTensor TensorListGather "
    "TensorListGetItem TensorListLength TensorListPopBack TensorListPushBack TensorListReserve "
    "TensorListResize TensorListScatter TensorListScatterIntoExistingList "
    "TensorListScatterV2 TensorListSetItem TensorListSplit TensorListStack"
).split()
WITHOUT_RECORDS = {
    **dict.fromkeys(
        _LISTS, "takes or returns a list: tests/exporter/capture/tensorflow/test_tensor_lists.py"
    ),
    **dict.fromkeys(
        ("Case", "If", "While"), "calls functions: tests/exporter/capture/tensorflow/test_models.py"
    ),
}
