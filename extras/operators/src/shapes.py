"""Shapes, dtypes and gradients by the declaration of an operator, which is `about`.

Sizes may be symbolic, so this has the rule of `signature.rs` again; a test compares both.
"""


def extents(about, shapes):
    """The broadcast leading axes, and the extents of the named axes; sizes may be symbolic."""
    sizes, leading = {}, []
    for name, axes, shape in zip(names(about), about["inputs"], shapes):
        if shape is None:
            continue
        front = len(shape) - len(axes)
        if front < 0:
            raise ValueError(
                f"{about['name']}: {name}: expected at least {len(axes)} axes, found {len(shape)}"
            )
        for axis, extent in zip(axes, shape[front:]):
            expected = axis if isinstance(axis, int) else sizes.setdefault(axis, extent)
            if expected != extent:
                raise ValueError(
                    f"{about['name']}: {name}: expected {expected} along {axis}, found {extent}"
                )
        batch = list(shape[:front])
        longest = max(len(leading), front)
        pairs = zip(padded(leading, longest), padded(batch, longest))
        leading = [broadcast(about, name, *pair) for pair in pairs]
    return leading, sizes


def broadcast(about, name, extent, found):
    # A size that depends on data is compared with nothing but itself, because its value is not known.
    for one, other in ((extent, found), (found, extent)):
        if isinstance(one, int) and one == 1:
            return other
    if extent == found:
        return extent
    if extent == 1:
        return found
    if found != 1:
        raise ValueError(
            f"{about['name']}: {name}: expected {extent} or 1 along a leading axis, found {found}"
        )
    return extent


def padded(shape, ndim):
    return [1] * (ndim - len(shape)) + list(shape)


def output_shapes(about, shapes):
    leading, sizes = extents(about, shapes)
    size = lambda axis: axis if isinstance(axis, int) else sizes[axis]
    return [[*leading, *map(size, axes)] for axes in about["outputs"]]


def whole_shapes(about, shapes):
    """The shapes of the inputs that are there, with the broadcast leading axes."""
    leading, _ = extents(about, shapes)
    written = in_place(about)
    return [
        shape if at in written else (*leading, *shape[len(shape) - len(axes) :])
        for at, (axes, shape) in enumerate(zip(about["inputs"], shapes))
        if shape is not None
    ]


def output_dtypes(about, found, convert, is_wide=True):
    """The names of the outputs' dtypes for the names of the inputs'. `convert` is as for `wrong_dtypes` in Rust."""
    for inputs, outputs in about["dtypes"]:
        if all(b in (None, a) for a, b in zip(inputs, found)):
            return outputs
    return about["refuse"](found, convert, is_wide)


TENSORS = ("tensor", "optional", "in place")


def names(about, kinds=TENSORS):
    return [name for name, kind in about["parameters"] if kind in kinds]


def in_place(about):
    """The indices of the tensors that the function changes."""
    kinds = [kind for _, kind in about["parameters"]]
    return [index for index, kind in enumerate(kinds) if kind == "in place"]


def each(function, tensors):
    """The function of each tensor, and `None` where an optional one is absent."""
    return [None if tensor is None else function(tensor) for tensor in tensors]


def aligned(about, shapes):
    """The shapes with as many leading axes each, so that one more in front of each is one axis."""
    fronts = [
        0 if shape is None else len(shape) - len(axes)
        for axes, shape in zip(about["inputs"], shapes)
    ]
    return [
        shape if shape is None else (1,) * (max(fronts) - front) + tuple(shape)
        for front, shape in zip(fronts, shapes)
    ]


def gradients_of(about, found, tensors, is_floating, no_gradient, total):
    """The gradient of each tensor: of those that have one, in the order in which `backward` fills them."""
    found, gradients = iter(found), []
    for has_gradient, tensor in zip(about["floating"], tensors):
        # One that is of floating-point numbers in other instances only is filled as well.
        gradient = next(found) if has_gradient else None
        if tensor is None:
            gradients.append(None)
        elif gradient is None or not is_floating(tensor):
            gradients.append(no_gradient(tensor))
        else:
            gradients.append(summed(gradient, tensor.shape, total))
    return gradients


def summed(gradient, shape, total):
    """The gradient of an input that was broadcast."""
    extra = gradient.ndim - len(shape)
    axes = [
        axis
        for axis in range(gradient.ndim)
        if axis < extra or shape[axis - extra] != gradient.shape[axis]
    ]
    return total(gradient, tuple(axes)).reshape(shape) if axes else gradient


def many(result):
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def single(results):
    """What a function of so many results returns."""
    return tuple(results) if len(results) > 1 else next(iter(results), None)
