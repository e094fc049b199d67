"""Reductions, sorting and running totals against eager PyTorch: dims, keepdim, types, zero-dim tensors."""

import math

import torch

from .records import BASE, EVERYWHERE, HIGHEST, Record, check, floats, integers, parametrized

X = floats(3, 4, 5)
I = integers(3, 4, 5)  # noqa: E741
B = X > 0.5
NAN = torch.tensor([[1.0, math.nan, 3.0], [math.nan, math.nan, 1.0]])
DISTINCT = torch.randperm(60, generator=torch.Generator().manual_seed(0)).reshape(3, 4, 5)
REDUCED = (*EVERYWHERE, 11, 18)


def _moments_of_few() -> list[Record]:
    """Over dims that turn out to have no element, or one."""

    def moments(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        variance, mean = torch.var_mean(x, 0, keepdim=True)
        biased, of_all = torch.var_mean(x, correction=0)
        return (
            variance,
            mean,
            biased,
            of_all,
            x.mean(0),
            x.mean(),
            x.std(0),
            x.var(1),
            torch.std_mean(x, 0)[1],
        )

    return [
        Record(
            f"moments of {count} dynamic {kind}",
            moments,
            (X[0, :count].to(kind),),
            REDUCED,
            dynamic=({0: "n"},),
        )
        for count in (0, 1, 4)
        for kind in (torch.float32, torch.float64, torch.float16)
        if kind == torch.float32 or count == 0
    ]


def _over_dims() -> list[Record]:
    records = []
    for name in ("sum", "mean", "amax", "amin", "std", "var", "logsumexp", "nansum"):
        function = getattr(torch, name)
        opsets = BASE if name == "nansum" else REDUCED
        records += [
            Record(
                f"{name} dim {dim} keepdim {keepdim}",
                lambda x, f=function, d=dim, k=keepdim: f(x, dim=d, keepdim=k),
                (X,),
                opsets,
            )
            for dim, keepdim in ((1, False), (-1, True), ((0, -1), False), ((-2, -1), True))
        ]
        if name != "logsumexp":
            records.append(Record(f"{name} of all", lambda x, f=function: f(x), (X,), opsets))
            records.append(
                Record(f"{name} no dims", lambda x, f=function: f(x, dim=(), keepdim=True), (X,), opsets)
            )
        if name not in ("std", "var"):
            records.append(
                Record(
                    f"{name} of scalar", lambda x, f=function: f(x[0, 0, 0], dim=-1), (X,), (9, 13, HIGHEST)
                )
            )
    for name in ("sum", "amax", "amin", "prod"):
        function = getattr(torch, name)
        records.append(
            Record(f"{name} of int", lambda x, f=function: f(x, dim=1), (I.clamp(1, 3),), EVERYWHERE)
        )
        records.append(
            Record(f"{name} of int32", lambda x, f=function: f(x, dim=1), (I.clamp(1, 3).int(),), EVERYWHERE)
        )
        records.append(Record(f"{name} of bool", lambda x, f=function: f(x, dim=1), (B,), (*EVERYWHERE, 20)))
        records.append(
            Record(
                f"{name} of uint8", lambda x, f=function: f(x, dim=1), (I.clamp(1, 3).byte(),), (9, 12, 13)
            )
        )
    records += [
        Record(
            "mean of nothing", lambda x: (x.mean(), x.mean(0), x.mean(1, True)), (torch.zeros(2, 0),), REDUCED
        ),
        Record("sum dtype", lambda x: x.sum(1, dtype=torch.float64), (X,), (9, 13)),
        Record("sum of int as float", lambda x: x.sum(dtype=torch.float32), (I,), (9, 13)),
        Record("mean dtype", lambda x: x.mean(1, dtype=torch.float32), (I,), (9, 13)),
        Record("mean of half", lambda x: x.mean(1), (X.half(),), (9, 13)),
        Record("prod", torch.prod, (X,), EVERYWHERE),
        Record("prod dim", lambda x: torch.prod(x, 1, keepdim=True), (X,), EVERYWHERE),
        Record("nanmean", lambda x: torch.nanmean(x, 1), (NAN,), (9, 13)),
        Record("sum of nothing", lambda x: x.sum(1), (torch.zeros(2, 0),), (13,)),
        Record("mean dynamic", lambda x: x.mean((0, 2)), (X,), (9, 18), dynamic=({0: "a", 2: "b"},)),
        *_moments_of_few(),
        Record(
            "logsumexp infinite", lambda x: x.logsumexp(0), (torch.tensor([-math.inf, -math.inf]),), (9, 18)
        ),
        Record("logsumexp large", lambda x: x.logsumexp(0), (torch.tensor([1000.0, 999.0]),), REDUCED),
    ]
    return records


def _extremes() -> list[Record]:
    records = []
    for name in ("max", "min"):
        extreme, index = getattr(torch, name), getattr(torch, f"arg{name}")
        records += [
            Record(f"{name} of all", lambda x, f=extreme: f(x), (X,), REDUCED),
            Record(f"{name} of all int", lambda x, f=extreme: f(x), (I,), EVERYWHERE),
            Record(f"{name} dim", lambda x, f=extreme: f(x, 1), (X,), (*REDUCED, 12)),
            Record(f"{name} dim keepdim", lambda x, f=extreme: f(x, -1, keepdim=True), (X,), REDUCED),
            Record(f"{name} dim ties", lambda x, f=extreme: f(x, 1), (I % 3,), (*EVERYWHERE, 12)),
            Record(f"{name} dim of scalar", lambda x, f=extreme: f(x.sum(), 0), (X,), (9, 13)),
            Record(f"{name} dim of bool", lambda x, f=extreme: f(x, 1), (B,), (9, 13)),
            Record(f"arg{name}", lambda x, f=index: f(x), (X,), EVERYWHERE),
            Record(f"arg{name} keepdim", lambda x, f=index: f(x, keepdim=True), (X,), EVERYWHERE),
            Record(f"arg{name} dim", lambda x, f=index: f(x, -2), (X,), (*REDUCED, 12)),
            Record(f"arg{name} dim keepdim", lambda x, f=index: f(x, 2, keepdim=True), (I % 4,), EVERYWHERE),
            Record(f"arg{name} int32", lambda x, f=index: f(x, 1), (I.int(),), EVERYWHERE),
            Record(f"arg{name} of scalar", lambda x, f=index: f(x.sum(), -1, keepdim=True), (X,), (9, 13)),
        ]
    records += [
        Record("aminmax", torch.aminmax, (X,), (9, 13, 18)),
        Record("aminmax dim", lambda x: torch.aminmax(x, dim=-1, keepdim=True), (X,), (9, 13, 18)),
    ]
    return records


def _truth() -> list[Record]:
    records = []
    for name in ("any", "all"):
        function = getattr(torch, name)
        records += [
            Record(name, function, (B,), (*EVERYWHERE, 20)),
            Record(f"{name} dim", lambda x, f=function: f(x, 1), (B,), EVERYWHERE),
            Record(
                f"{name} dim keepdim", lambda x, f=function: f(x, -1, keepdim=True), (X.round(),), (9, 13)
            ),
            Record(f"{name} dims", lambda x, f=function: f(x, (0, -1)), (B,), (9, 13)),
            Record(f"{name} no dims", lambda x, f=function: f(x, dim=()), (X.round(),), (9, 13)),
            Record(f"{name} of int", function, (I,), EVERYWHERE),
            Record(f"{name} of uint8", lambda x, f=function: f(x, 1), (B.byte(),), (9, 13)),
            Record(
                f"{name} of nothing",
                lambda x, f=function: f(x, 1),
                (torch.zeros(2, 0, dtype=torch.bool),),
                (9, 13, 20),
            ),
            Record(f"{name} of scalar", lambda x, f=function: f(x[0, 0, 0]), (B,), (9, 13)),
        ]
    records += [
        Record("count_nonzero", torch.count_nonzero, (X.round(),), EVERYWHERE),
        Record("count_nonzero dim", lambda x: torch.count_nonzero(x, 1), (B,), EVERYWHERE),
        Record("_is_all_true", lambda x: torch.ops.aten._is_all_true(x > -9), (X,), EVERYWHERE),
        Record("_is_any_true", lambda x: torch.ops.aten._is_any_true(x > 9), (X,), EVERYWHERE),
        Record("count_nonzero dims", lambda x: torch.count_nonzero(x, (0, -1)), (I,), EVERYWHERE),
    ]
    return records


def _moments() -> list[Record]:
    records = []
    for name in ("var", "std", "var_mean", "std_mean"):
        function = getattr(torch, name)
        records += [
            Record(f"{name} of all", lambda x, f=function: f(x), (X,), EVERYWHERE),
            Record(
                f"{name} of nothing",
                lambda x, f=function: (
                    f(x, unbiased=False),
                    f(x, 0),
                    f(x, 1),
                    f(x, 1, correction=0, keepdim=True),
                ),
                (torch.zeros(2, 0),),
                REDUCED,
            ),
            Record(f"{name} of scalar", lambda x, f=function: (f(x[0, 0, 0]), f(x[0, 0, 0], 0)), (X,), BASE),
            Record(f"{name} biased", lambda x, f=function: f(x, (1, 2), unbiased=False), (X,), EVERYWHERE),
            Record(
                f"{name} correction",
                lambda x, f=function: f(x, -1, correction=2, keepdim=True),
                (X,),
                EVERYWHERE,
            ),
            Record(f"{name} correction 0", lambda x, f=function: f(x, dim=None, correction=0), (X,), (9, 18)),
            Record(f"{name} of one", lambda x, f=function: f(x[:1], 0), (X,), (9, 18)),
            Record(
                f"{name} dynamic",
                lambda x, f=function: f(x, (0, 1)),
                (X,),
                (9, 18),
                dynamic=({0: "a", 1: "b"},),
            ),
        ]
    return records


def _norms() -> list[Record]:
    sparse = X * B
    records = []
    for order in (0, 1, 2, 3, 0.5, math.inf, -math.inf):
        records += [
            Record(
                f"vector_norm {order}",
                lambda x, o=order: torch.linalg.vector_norm(x, o, 1),
                (sparse,),
                REDUCED,
            ),
            Record(f"norm {order}", lambda x, o=order: x.norm(o, (0, -1), keepdim=True), (sparse,), (9, 18)),
            Record(
                f"vector_norm {order} of all",
                lambda x, o=order: torch.linalg.vector_norm(x, o),
                (sparse,),
                (9, 18),
            ),
        ]
    records += [
        Record("norm", torch.norm, (X,), EVERYWHERE),
        Record("norm dtype", lambda x: torch.norm(x, 2, 1, dtype=torch.float64), (X,), (9, 18)),
        Record("norm of scalar", lambda x: torch.linalg.vector_norm(-x[0, 0, 0].abs(), 2), (X,), (9, 18)),
        Record("cdist", torch.cdist, (X, X[:, :2].flip(0)), EVERYWHERE),
        Record("cdist 1", lambda x, y: torch.cdist(x, y, 1.0), (X, X.flip(1)), (9, 18)),
        Record("cdist broadcast", torch.cdist, (X, X[0]), (9, 18)),
        Record("normalize", lambda x: torch.nn.functional.normalize(x, dim=1), (X,), EVERYWHERE),
        Record("dist", torch.dist, (X, X.flip(0)), EVERYWHERE),
        Record("dist 1", lambda x, y: torch.dist(x, y, 1), (X, X.flip(0)), (9, 18)),
    ]
    return records


def _orders() -> list[Record]:
    ties = integers(6, 8, low=0, high=3)
    records = []
    for largest in (True, False):
        records += [
            Record(
                f"topk {largest}", lambda x, m=largest: torch.topk(x, 2, 1, m), (X,), (*EVERYWHERE, 10, 11)
            ),
            Record(
                f"topk {largest} last", lambda x, m=largest: x.topk(3, largest=m), (X,), (*EVERYWHERE, 10, 11)
            ),
            Record(
                f"topk {largest} int",
                lambda x, m=largest: x.topk(3, 1, m),
                (DISTINCT,),
                (9, 10, 11, 13, 24),
            ),
            Record(
                f"topk {largest} int32",
                lambda x, m=largest: x.topk(3, 1, m),
                (DISTINCT.int(),),
                (*EVERYWHERE, 11),
            ),
            Record(
                f"topk {largest} uint8",
                lambda x, m=largest: x.topk(3, 1, m),
                (DISTINCT.byte(),),
                (*EVERYWHERE, 11),
            ),
            Record(f"sort {largest}", lambda x, m=largest: x.sort(1, descending=m), (X,), (*EVERYWHERE, 11)),
            Record(
                f"argsort {largest}", lambda x, m=largest: x.argsort(descending=m), (X,), (*EVERYWHERE, 11)
            ),
            Record(
                f"sort {largest} stable",
                lambda x, m=largest: x.sort(dim=1, descending=m, stable=True),
                (ties,),
                (11, 13),
            ),
            Record(
                f"sort {largest} stable float",
                lambda x, m=largest: x.sort(dim=-1, descending=m, stable=True),
                (ties.float(),),
                (9, 13),
            ),
            Record(
                f"argsort {largest} stable",
                lambda x, m=largest: torch.argsort(x, dim=0, descending=m, stable=True),
                (ties,),
                (11, 13),
            ),
            Record(
                f"sort {largest} dynamic",
                lambda x, m=largest: x.sort(1, descending=m),
                (X,),
                (9, 10, 11, 13),
                dynamic=({1: "n"},),
            ),
        ]
    records += [
        Record("topk of scalar", lambda x: x.sum().topk(1), (X,), (9, 11, 13)),
        Record("sort of scalar", lambda x: x.sum().sort(), (X,), (9, 11, 13)),
        Record("sort bool", lambda x: x.sort(dim=1, stable=True), (B,), (9, 11, 13)),
        Record("msort", torch.msort, (X,), (9, 13)),
        Record("kthvalue", lambda x: x.kthvalue(2, 1), (X,), (*EVERYWHERE, 11)),
        Record("kthvalue keepdim", lambda x: x.kthvalue(3, -1, keepdim=True), (X,), (9, 13)),
        Record("median", torch.median, (X,), (9, 13)),
        Record("median dim", lambda x: x.median(1), (X,), (*EVERYWHERE, 11)),
        Record("median dim keepdim", lambda x: x.median(-1, keepdim=True), (DISTINCT,), (11, 13)),
        Record("quantile", lambda x: torch.quantile(x, 0.3, dim=1), (X,), (7, 9, 11, 13)),
        Record("quantile of all", lambda x: torch.quantile(x, 0.77), (X,), (9, 13)),
        Record("quantile keepdim", lambda x: torch.quantile(x, 0.5, keepdim=True), (X,), (9, 13)),
        *(
            Record(
                f"quantile {i}", lambda x, i=i: torch.quantile(x, 0.4, dim=-1, interpolation=i), (X,), (13,)
            )
            for i in ("lower", "higher", "nearest", "midpoint")
        ),
        Record("quantile of NaN", lambda x: torch.quantile(x, 0.5, dim=1), (NAN,), (9, 13)),
        Record(
            "quantile dynamic",
            lambda x: (torch.quantile(x, 0.3, dim=1, keepdim=True), torch.quantile(x, 0.8)),
            (torch.cat([NAN, X[0, :, :3]]),),
            BASE,
            dynamic=({0: "n", 1: "m"},),
        ),
        Record("median dynamic", lambda x: x.median(1), (X,), (10, 13), dynamic=({1: "n"},)),
    ]
    return records


def _running() -> list[Record]:
    infinite = torch.tensor([[1.0, math.inf, 2.0], [math.nan, 1.0, -math.inf]])
    records = []
    for name, changes in (("cumsum", (11, 14)), ("cumprod", ())):
        function = getattr(torch, name)
        opsets = (*BASE, *changes)
        records += [
            Record(
                f"{name} {dim}",
                lambda x, f=function, d=dim: f(x, d),
                (X,),
                (8, *opsets) if dim == 0 else opsets,
            )
            for dim in (0, 1, -1)
        ]
        records += [
            Record(f"{name} of int", lambda x, f=function: f(x, 1), (I,), opsets),
            Record(f"{name} of int32", lambda x, f=function: f(x, 1), (I.int(),), opsets),
            Record(f"{name} of bool", lambda x, f=function: f(x, 1), (B,), opsets),
            Record(f"{name} dtype", lambda x, f=function: f(x, 1, dtype=torch.float64), (I,), opsets),
            Record(f"{name} infinite", lambda x, f=function: f(x, 1), (infinite,), (9, 13, HIGHEST)),
            Record(f"{name} of scalar", lambda x, f=function: f(x.sum(), 0), (X,), opsets),
            Record(f"{name} of one", lambda x, f=function: f(x[:1], 0), (X,), opsets),
        ]
    records += [
        Record("logcumsumexp", lambda x: torch.logcumsumexp(x * 9, 1), (X,), (9, 13)),
        Record("logcumsumexp infinite", lambda x: torch.logcumsumexp(x, 1), (infinite,), (9, 13)),
        Record(
            "sums of a given integer type",
            lambda x: (
                x.sum(0, dtype=torch.int32),
                x.cumsum(0, dtype=torch.int32),
                x.prod(1, dtype=torch.int16),
            ),
            (I,),
            (9, 13),
        ),
        Record(
            "cumsum dynamic",
            lambda x: x.cumsum(1),
            (I,),
            (8, 9, 11, 13),
            dynamic=({1: "n"},),
        ),
        *(
            Record(
                f"{name} dynamic {'x'.join(map(str, x.shape))} {x.dtype}",
                lambda x, f=function: f(x, 1),
                (x,),
                (*EVERYWHERE, 11, 25),
                dynamic=({0: "m", 1: "n"},),
            )
            for name, function in (("cumprod", torch.cumprod), ("logcumsumexp", torch.logcumsumexp))
            for x in (X[0], X[0, :, :1], X[0, :, :0], I[0].clamp(-2, 3))
            if name == "cumprod" or x.is_floating_point()
        ),
        Record(
            "vander dynamic",
            lambda x: torch.linalg.vander(x),
            (X[0, 0],),
            (*EVERYWHERE, 25),
            dynamic=({0: "n"},),
        ),
    ]
    return records


@parametrized(_over_dims())
def test_reduction_agrees_with_eager(record: Record) -> None:
    check(record)


@parametrized(_extremes())
def test_extreme_agrees_with_eager(record: Record) -> None:
    check(record)


@parametrized(_truth())
def test_truth_agrees_with_eager(record: Record) -> None:
    check(record)


@parametrized(_moments())
def test_moment_agrees_with_eager(record: Record) -> None:
    check(record)


@parametrized(_norms())
def test_norm_agrees_with_eager(record: Record) -> None:
    check(record)


@parametrized(_orders())
def test_order_agrees_with_eager(record: Record) -> None:
    check(record)


@parametrized(_running())
def test_running_total_agrees_with_eager(record: Record) -> None:
    check(record)
