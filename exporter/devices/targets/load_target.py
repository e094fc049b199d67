"""Reads targets from TOML files: the package's by name, others by path."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import os
import pathlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ....registration import UsageError
from ....registration.form_rule import COMPOSITION, STEPS, FormRule
from ...files.small_files import MAXIMUM_SETTINGS, parse_toml, read_small, reason_of
from .target import Choice, Conventions, PreferredQuantization, Range, Restriction, Target, opset_for
from .versions import (
    BOUNDS,
    content_at,
    first_versions,
    is_version,
    other_target,
    split_version,
    version_key,
)

_FOLDER = pathlib.Path(__file__).parent / "files"
_OTHER_NAMES = {"litert": "tflite", "directml": "dml"}
"""Other names of targets, by which they are loaded too."""
_CONVENTIONS = {
    "constants": ("initializers", "nodes"),
    "bool_constants": ("uint8", "int8", "int32", "int64", "float"),
    "int64_constants": ("int32",),
    "resize": ("sizes", "scales"),
    "gelu": ("halves",),
    "broadcasts": ("ranks", "none", "vectors"),
    "gemm_weights": ("transposed",),
    "recurrent_outputs": ("all",),
    "recurrent_sequences": ("squeezed",),
    "vector_inputs": ("reshaped",),
    "state_inputs": ("required",),
}

_OPERATOR_LISTS = (
    "accelerated_operators", "batch_operators", "finite_operators", "host_operators", "measured_operators",
)  # fmt: skip
_OUTCOMES = ("refused", "wrong", "inexact")
_QUANTIZED_TYPES = ("int8", "uint8", "int16", "uint16")
_NOT_IN_FILES = {"name", "version", "content", "is_forced"}


def target_names() -> list[str]:
    """The names of the targets that come with opsetta."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def load_target(target: str | os.PathLike[str] | Target) -> Target:
    """Load a target by its name, or from a TOML file.

    Args:
        target: a name such as `"rknn"`, optionally with a version of the product, `"opencv@4.5"`; by default
            the newest measured version. Or the path of a TOML file: a `PathLike`, or a string that ends in
            `.toml`. A `Target` is returned unchanged.

    Raises:
        UsageError: the target or version does not exist, or the file is wrong; the message names the key.
    """
    if isinstance(target, Target):
        return target
    if not isinstance(target, (str, os.PathLike)):
        raise UsageError(f"target must be a name or the path of a TOML file, not {type(target).__name__}")
    name, version = split_version(target) if isinstance(target, str) else (target, None)
    if isinstance(name, str) and not name.endswith(".toml"):
        name = _OTHER_NAMES.get(name, name)
        if name not in target_names():
            raise UsageError(
                f"there is no target '{name}'{_closest(name, target_names())}; `opsetta targets` lists "
                "them, and the path of a TOML file names a target of your own"
            )
        path = _FOLDER / f"{name}.toml"
    else:
        path = pathlib.Path(name)
    try:
        text = read_small(path, MAXIMUM_SETTINGS).decode()
    except (OSError, ValueError) as error:
        raise UsageError(f"the target '{path}' cannot be read: {reason_of(error)}") from error
    return parse_target(path.stem, text, version)


def resolve_target(
    opset: int | None, target: str | os.PathLike[str] | Target | None, *, force: bool = False
) -> tuple[int, Target | None]:
    """Resolve the opset and the target of an export.

    Args:
        force: whether to write the model, with warnings, even if the target does not support it or computes
            wrong results.

    Raises:
        OpsetError: opsetta does not support the opset.
        TargetError: the target does not support the opset.
        UsageError: the target does not exist, or its file is wrong.
    """
    loaded = None if target is None else load_target(target)
    if loaded is not None and force:
        loaded = dataclasses.replace(loaded, is_forced=True)
    return opset_for(opset, loaded), loaded


def parse_target(name: str, text: str, version: str | None = None) -> Target:
    """Parse a target from the text of its file, for a version of the product or the newest one.

    Raises:
        UsageError: the text is not TOML, a key is unknown or missing, a value is wrong, or the file does not
            describe the version.
    """
    try:
        content = parse_toml(text.encode())
    except ValueError as error:
        raise UsageError(f"target '{name}' is not valid TOML: {error}") from error
    _VersionReader(name).check(content)
    return target_at(name, content, version)


def target_at(name: str, content: Mapping[str, Any], version: str | None) -> Target:
    """Make a target from the content of its file, at a version or the newest one.

    Raises:
        UsageError: a value is wrong, or the file does not describe the version.
    """
    measured: list[str] = content.get("measured_versions", [])
    if version is None:
        return _Reader(name).target(content, measured[-1] if measured else "")
    if not is_version(version):
        raise UsageError(f"target '{name}@{version}': '{version}' is not a version, such as '4.5'")
    name_at_version = other_target(content, version)
    if name_at_version is not None:
        return load_target(name_at_version)
    if not measured:
        raise UsageError(f"target '{name}' does not describe versions: leave '@{version}' out")
    if version_key(version) < version_key(measured[0]):
        raise UsageError(
            f"target '{name}' describes versions from {measured[0]} on, not {version}: lower to a plain "
            "opset of its time instead"
        )
    return _Reader(f"{name}@{version}").target(content, version)


class _Reader:
    """Reads the content of one file; errors name the file and the key."""

    def __init__(self, name: str):
        self.name = name

    def target(self, whole_content: Mapping[str, Any], version: str) -> Target:
        """Make the target at a version; "" if the file has no versions."""
        content = content_at(whole_content, version) if version else whole_content
        self.check_keys("", content, {*_keys(Target) - _NOT_IN_FILES, "versions"})
        title = (self.text(content, "title") or self.name).replace("{version}", version)
        fields: dict[str, Any] = {"name": self.name, "title": title, "version": version}
        fields["measured_versions"] = tuple(content.get("measured_versions", ()))
        fields["content"] = whole_content
        fields["sources"] = self.texts("sources", content.get("sources", []))
        fields["notes"] = self.text(content, "notes").strip()
        fields["opsets"] = self.range("opsets", content)
        fields["ir_versions"] = self.range("ir_versions", content)
        fields["operators"] = self.choice("operators", content, _operators())
        fields["types"] = self.choice("types", content, _element_types())
        fields["domains"] = self.texts("domains", content.get("domains", []))
        for key in _OPERATOR_LISTS:
            fields[key] = self.texts(key, content.get(key, []))
            for name in fields[key]:
                self.one_of(key, name, _operators())
        fields["static_shapes"] = self.flag("static_shapes", content, False)
        fields["read_inputs"] = self.flag("read_inputs", content, False)
        fields["computed_outputs"] = self.flag("computed_outputs", content, False)
        fields["external_data"] = self.flag("external_data", content, True)
        for key in ("maximum_bytes", "maximum_dimensions"):
            fields[key] = self.number(key, content)
        fields["restrictions"] = tuple(
            self.restriction(f"restrictions[{index}]", entry)
            for index, entry in enumerate(self.list("restrictions", content.get("restrictions", [])))
        )
        fields["forms"] = tuple(
            rule
            for index, entry in enumerate(self.list("forms", content.get("forms", [])))
            for rule in self.forms(f"forms[{index}]", entry)
        )
        fields["conventions"] = self.conventions(content)
        fields["quantization"] = self.quantization(content)
        return Target(**fields)

    def conventions(self, content: Mapping[str, Any]) -> Conventions:
        table = self.table("conventions", content)
        self.check_keys("conventions.", table, _keys(Conventions))
        fields: dict[str, Any] = {"float_exponents": self.flag("float_exponents", table, False)}
        for key, known in (
            ("explicit_attributes", _attributes),
            ("unshared_constants", _operators),
            ("omitted_passes", _optimization_passes),
            ("kernels", _operators),
        ):
            fields[key] = self.texts(f"conventions.{key}", table.get(key))
            for name in fields[key]:
                self.one_of(f"conventions.{key}", name, known())
        for key, values in _CONVENTIONS.items():
            if key in table:
                self.one_of(f"conventions.{key}", table[key], values)
                fields[key] = table[key]
        return Conventions(**fields)

    def quantization(self, content: Mapping[str, Any]) -> PreferredQuantization:
        table = self.table("quantization", content)
        self.check_keys("quantization.", table, _keys(PreferredQuantization))
        fields: dict[str, Any] = {}
        for key in table:
            if key in ("activations", "weights"):
                self.one_of(f"quantization.{key}", table[key], _QUANTIZED_TYPES)
                fields[key] = table[key]
            else:
                fields[key] = self.flag(key, table, False)
        return PreferredQuantization(**fields)

    def restriction(self, key: str, entry: Any) -> Restriction:
        if not isinstance(entry, dict):
            self.fail(key, "is a table")
        self.check_keys(f"{key}.", entry, _keys(Restriction))
        operator = self.text(entry, "operator", required=True)
        self.one_of(f"{key}.operator", operator, _operators())
        values = tuple(
            tuple(value) if isinstance(value, list) else value
            for value in self.list(f"{key}.values", entry.get("values", []))
        )
        if ("attribute" in entry) != bool(values):
            self.fail(key, "has an attribute and its values, or neither")
        items = [item for value in values for item in (value if isinstance(value, tuple) else (value,))]
        if not all(isinstance(item, (int, str)) for item in items):
            self.fail(f"{key}.values", "is a list of integers, strings, and lists of them")
        return Restriction(
            operator,
            attribute=self.text(entry, "attribute") or None,
            values=values,
            outputs=self.number("outputs", entry),
            constant_inputs=self.texts(f"{key}.constant_inputs", entry.get("constant_inputs", [])),
            ranks=self.range("ranks", entry),
            ranked_inputs=self.texts(f"{key}.ranked_inputs", entry.get("ranked_inputs", [])),
            even_inputs=self.texts(f"{key}.even_inputs", entry.get("even_inputs", [])),
            opsets=self.range("opsets", entry),
            outcome=self.outcome(key, entry),
        )

    def forms(self, key: str, entry: Any) -> list[FormRule]:
        """Return the rules of an entry, one for each of its operators."""
        operators = entry.get("operator") if isinstance(entry, dict) else None
        if not isinstance(operators, list):
            return [self.form(key, entry)]
        if not operators:
            self.fail(f"{key}.operator", "names an operator, or several")
        return [self.form(key, {**entry, "operator": operator}) for operator in operators]

    def form(self, key: str, entry: Any) -> FormRule:
        if not isinstance(entry, dict):
            self.fail(key, "is a table")
        self.check_keys(f"{key}.", entry, _keys(FormRule))
        operator, form = (self.text(entry, name, required=True) for name in ("operator", "form"))
        self.one_of(f"{key}.operator", operator, _operators())
        self.one_of(f"{key}.form", form, _forms(operator))
        before = self.texts(f"{key}.before", entry.get("before", []))
        owners_of_tables = {
            "attributes": [operator],
            "other_attributes": [operator],
            "before_attributes": before,
        }
        for side, owners in owners_of_tables.items():
            for name, values in self.table(side, entry).items():
                for owner in owners:
                    self.one_of(f"{key}.{side}", f"{owner}.{name}", _attributes())
                self.list(f"{key}.{side}.{name}", values)
        ranks = self.list(f"{key}.ranks", entry.get("ranks", []))
        if not all(type(rank) is int and rank >= 0 for rank in ranks):
            self.fail(f"{key}.ranks", "is a list of integers")
        names = {
            name: self.texts(f"{key}.{name}", entry.get(name, []))
            for name in (
                "types",
                "constant_inputs",
                "computed_inputs",
                "present_inputs",
                "shared_inputs",
                "behind",
                "not_behind",
                "before",
                "through",
            )
        }
        for value in names["types"]:
            self.one_of(f"{key}.types", value, _element_types())
        for name in ("behind", "not_behind", "before", "through"):
            for value in names[name]:
                self.one_of(f"{key}.{name}", value, _operators())
        if (names["through"] or entry.get("before_attributes")) and not before:
            self.fail(key, "has `before`, if it has `through` or `before_attributes`")
        tables = {
            side: {name: tuple(values) for name, values in self.table(side, entry).items()}
            for side in owners_of_tables
        }
        outputs, at_emission = self.number("outputs", entry), self.flag("at_emission", entry, False)
        rule = FormRule(
            operator, form, outputs=outputs, ranks=tuple(ranks), at_emission=at_emission,
            maximum_first_size=self.number("maximum_first_size", entry),
            at_output=self.flag("at_output", entry, False),
            splits_batch=self.flag("splits_batch", entry, False), always=self.flag("always", entry, False),
            attributes=tables["attributes"], other_attributes=tables["other_attributes"],
            before_attributes=tables["before_attributes"],
            outcome=self.outcome(key, entry) if "outcome" in entry else "", **names,
        )  # fmt: skip
        if rule.always and (not rule.outcome or rule.splits_batch):
            self.fail(f"{key}.always", "has an `outcome` beside it, and no `splits_batch`")
        if at_emission and rule != FormRule(operator, form, at_emission=True):
            self.fail(f"{key}.at_emission", "has no conditions beside it")
        if at_emission and form in (COMPOSITION, STEPS):
            self.fail(f"{key}.at_emission", f"is not for the form '{form}'")
        return rule

    def outcome(self, key: str, entry: Mapping[str, Any]) -> str:
        outcome = self.text(entry, "outcome") or "refused"
        self.one_of(f"{key}.outcome", outcome, _OUTCOMES)
        return outcome

    def range(self, key: str, content: Mapping[str, Any]) -> Range:
        table = self.table(key, content)
        self.check_keys(f"{key}.", table, _keys(Range))
        bounds = Range(**{name: self.number(name, table) for name in table})
        if None not in (bounds.minimum, bounds.maximum) and bounds.minimum > bounds.maximum:  # type: ignore[operator]
            self.fail(key, "has a minimum that is at most the maximum")
        if bounds.default is not None and bounds.default not in bounds:
            self.fail(f"{key}.default", f"is in the range, {bounds}")
        return bounds

    def choice(self, key: str, content: Mapping[str, Any], names: Collection[str]) -> Choice:
        table = self.table(key, content)
        self.check_keys(f"{key}.", table, _keys(Choice))
        supported, refused = (
            self.texts(f"{key}.{which}", table.get(which, [])) for which in ("taken", "refused")
        )
        for name in (*supported, *refused):
            self.one_of(key, name, names)
        if set(supported) & set(refused):
            self.fail(key, f"takes and refuses {sorted(set(supported) & set(refused))}")
        return Choice(frozenset(supported), frozenset(refused))

    def check_keys(self, prefix: str, table: Mapping[str, Any], keys: Collection[str]) -> None:
        for key in table:
            if key not in keys:
                raise UsageError(
                    f"target '{self.name}' has an unknown key '{prefix}{key}'{_closest(key, keys)}"
                )

    def one_of(self, key: str, value: Any, values: Collection[str]) -> None:
        if value not in values:
            raise UsageError(f"target '{self.name}': {key} has no {value!r}{_closest(str(value), values)}")

    def table(self, key: str, content: Mapping[str, Any]) -> Mapping[str, Any]:
        result: Mapping[str, Any] = self._expect(
            key, content.get(key, {}), lambda v: isinstance(v, dict), "a table"
        )
        return result

    def list(self, key: str, value: Any) -> list[Any]:
        result: list[Any] = self._expect(key, value, lambda v: isinstance(v, list), "a list")
        return result

    def texts(self, key: str, value: Any) -> tuple[str, ...]:
        strings = self.list(key, [] if value is None else value)
        if not all(isinstance(item, str) for item in strings):
            self.fail(key, "is a list of strings")
        return tuple(strings)

    def text(self, content: Mapping[str, Any], key: str, required: bool = False) -> str:
        if required and not content.get(key):
            self.fail(key, "is missing")
        result: str = self._expect(key, content.get(key, ""), lambda v: isinstance(v, str), "a string")
        return result

    def flag(self, key: str, content: Mapping[str, Any], default: bool) -> bool:
        return bool(
            self._expect(key, content.get(key, default), lambda v: isinstance(v, bool), "true or false")
        )

    def number(self, key: str, content: Mapping[str, Any]) -> int | None:
        if key not in content:
            return None
        fits: Callable[[Any], bool] = lambda v: type(v) is int and v > 0  # noqa: E731
        result: int | None = self._expect(key, content[key], fits, "a positive integer")
        return result

    def _expect(self, key: str, value: Any, fits: Callable[[Any], bool], form: str) -> Any:
        if not fits(value):
            self.fail(key, f"is {form}")
        return value

    def fail(self, key: str, demand: str) -> None:
        raise UsageError(f"target '{self.name}': {key} {demand}")


class _VersionReader(_Reader):
    """Checks the list of versions in a file, and the content at each version."""

    def check(self, content: Mapping[str, Any]) -> None:
        """Check the versions of a file.

        Raises:
            UsageError: a key is unknown or missing, or a value is wrong.
        """
        measured = self.texts("measured_versions", content.get("measured_versions", []))
        if not all(map(is_version, measured)) or list(measured) != sorted(set(measured), key=version_key):
            self.fail("measured_versions", "is a list of versions, oldest first")
        entries = self.list("versions", content.get("versions", []))
        if entries and not measured:
            self.fail("measured_versions", "is missing: it lists the versions that `versions` is about")
        for index, entry in enumerate(entries):
            key = f"versions[{index}]"
            if not isinstance(entry, dict):
                self.fail(key, "is a table")
            bounds = [bound for bound in BOUNDS if bound in entry]
            if not bounds or not all(is_version(entry[bound]) for bound in bounds):
                self.fail(key, "has `from`, `below` or both, which are versions such as '4.5'")
            if "target" in entry:
                self.one_of(f"{key}.target", entry["target"], target_names())
        for version in first_versions(content, measured):
            if other_target(content, version) is None:
                _Reader(f"{self.name}@{version}").target(content, version)


def _keys(record_class: type) -> set[str]:
    return {field.name for field in dataclasses.fields(record_class)}


@functools.cache
def _element_types() -> frozenset[str]:
    import onnx_ir as ir

    return frozenset(dtype.name.lower() for dtype in ir.DataType if dtype is not ir.DataType.UNDEFINED)


@functools.cache
def _operators() -> frozenset[str]:
    """Return the names of all operators of the default domain at any opset."""
    import onnx

    return frozenset(s.name for s in onnx.defs.get_all_schemas_with_history() if s.domain == "")


@functools.cache
def _attributes() -> frozenset[str]:
    """Return all attributes of the operators of the default domain, such as `Resize.mode`."""
    import onnx

    schemas = (s for s in onnx.defs.get_all_schemas_with_history() if s.domain == "")
    return frozenset(f"{schema.name}.{name}" for schema in schemas for name in schema.attributes)


@functools.cache
def _optimization_passes() -> frozenset[str]:
    """Return the class names of all passes of the optimization."""
    from ....passes.onnx_graph.optimize import PASSES

    return frozenset(pass_type.__name__ for pass_type in PASSES)


@functools.cache
def _forms(operator: str) -> frozenset[str]:
    """Return the names of the forms of an operator that opsetta can write."""
    # Imported here: only targets that name forms need the symbolic functions.
    from .... import symbolics  # noqa: F401
    from ....registration import default_registry
    from ....registration.functions.forms import form_names

    recurrent = {STEPS} if operator in ("GRU", "LSTM", "RNN") else set()
    return frozenset({COMPOSITION, *recurrent, *form_names(default_registry, operator)})


def _closest(word: str, words: Collection[str]) -> str:
    close = difflib.get_close_matches(word, sorted(words), 1)
    return f" (did you mean '{close[0]}'?)" if close else ""
