"""The operations evaluated by cuEquivariance (https://docs.nvidia.com/cuda/cuequivariance).

Every class here IS its e3nn counterpart - same arguments, same parameters and buffers, same numbers - with
another ``forward``. cuEquivariance works on component-major features ("ir_mul") inside; the classes take and
give multiplicity-major ones. Its CUDA kernels come with a second package (cuequivariance-ops-torch-cu*);
without it, cuEquivariance evaluates with plain torch.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import cuequivariance as cue
import cuequivariance_torch as cuet
import torch
from cuequivariance.group_theory.experimental.e3nn import O3_e3nn
from e3nn import o3

from mace.modules._backend import Backend
from mace.modules.symmetric_contraction import SymmetricContraction

HAS_KERNELS = find_spec("cuequivariance_ops_torch") is not None


def _irreps(irreps: o3.Irreps) -> cue.Irreps:
    """The same irreps, coupled with e3nn's conventions."""
    return cue.Irreps(O3_e3nn, str(irreps))


def _widened(operands: Any) -> Any:
    """The same operands, with what torch.autocast made bfloat16 in float32."""
    if isinstance(operands, list):
        return [_widened(operand) for operand in operands]
    if isinstance(operands, dict):
        return {name: _widened(operand) for name, operand in operands.items()}
    is_half = isinstance(operands, torch.Tensor) and operands.dtype == torch.bfloat16
    return operands.float() if is_half else operands


class _Kernel(torch.nn.Module):
    """An operation of cuEquivariance; its constants are no state and stay float64."""

    def __init__(self, operation: torch.nn.Module) -> None:
        super().__init__()
        for module in operation.modules():
            for name, constant in list(module.named_buffers(recurse=False)):
                module.register_buffer(name, constant, persistent=False)
        self.operation = operation

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> _Kernel:
        return super()._apply(lambda tensor: tensor.to(fn(tensor).device), recurse)

    def forward(self, x: torch.Tensor | list[torch.Tensor], *args: Any, **kwargs: Any) -> Any:
        device_type = (x if isinstance(x, torch.Tensor) else x[0]).device.type
        if not torch.is_autocast_enabled(device_type):
            return self.operation(x, *args, **kwargs)
        with torch.autocast(device_type, enabled=False):  # the operations want operands of one dtype
            return self.operation(*_widened([x, *args]), **_widened(kwargs))


class CueqLinear(o3.Linear):
    """Linear map."""

    def __init__(self, irreps_in: o3.Irreps, irreps_out: o3.Irreps, **options: bool) -> None:
        super().__init__(irreps_in, irreps_out, **options)
        self.kernel = _Kernel(
            cuet.Linear(
                _irreps(self.irreps_in),
                _irreps(self.irreps_out),
                layout=cue.mul_ir,
                internal_weights=False,
                method="naive",
            )
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """[N, irreps_in.dim] to [N, irreps_out.dim]."""
        return self.kernel(features, weight=self.weight.unsqueeze(0))


class CueqTensorProduct(o3.TensorProduct):
    """Channel-wise tensor product with weights per row."""

    def __init__(
        self,
        irreps_in1: o3.Irreps,
        irreps_in2: o3.Irreps,
        irreps_out: o3.Irreps,
        instructions: list,
        **options: bool,
    ) -> None:
        super().__init__(irreps_in1, irreps_in2, irreps_out, instructions, **options)
        operation = cuet.ChannelWiseTensorProduct(
            _irreps(self.irreps_in1),
            _irreps(self.irreps_in2),
            [ir for _, ir in _irreps(self.irreps_out)],
            layout=cue.mul_ir,
            shared_weights=False,
            internal_weights=False,
            method="uniform_1d" if HAS_KERNELS else "naive",
        )
        assert str(operation.irreps_out) == str(_irreps(self.irreps_out)), "paths in another order"
        self.kernel = _Kernel(operation)

    def forward(self, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """[E, irreps_in1.dim], [E, irreps_in2.dim] and [E, weight_numel] to [E, irreps_out.dim]."""
        return self.kernel(x, y, weight)


class CueqFullyConnectedTensorProduct(o3.FullyConnectedTensorProduct):
    """Fully connected tensor product."""

    def __init__(
        self, irreps_in1: o3.Irreps, irreps_in2: o3.Irreps, irreps_out: o3.Irreps, **options: bool
    ) -> None:
        super().__init__(irreps_in1, irreps_in2, irreps_out, **options)
        self.kernel = _Kernel(
            cuet.FullyConnectedTensorProduct(
                _irreps(self.irreps_in1),
                _irreps(self.irreps_in2),
                _irreps(self.irreps_out),
                layout=cue.mul_ir,
                internal_weights=False,
                method="fused_tp" if HAS_KERNELS else "naive",
            )
        )

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """[N, irreps_in1.dim] and [N, irreps_in2.dim] to [N, irreps_out.dim]."""
        return self.kernel(x, y, weight=self.weight.unsqueeze(0))


class CueqSymmetricContraction(SymmetricContraction):
    """Symmetric contraction: by kernels on CUDA, by the base class elsewhere.

    cuEquivariance's evaluation without kernels is no alternative: it makes one torch operation per path,
    which takes minutes to build for max_ell 3 and is a hundred times slower than the base class.

    cuEquivariance has its own basis of the symmetric couplings. ``projection`` expresses the model's U
    matrices in it, whatever they are, so weights keep their meaning.
    """

    method: str | None = "uniform_1d" if HAS_KERNELS else None

    def __init__(self, irreps_in: o3.Irreps, irreps_out: o3.Irreps, correlation: int, **options: Any) -> None:
        super().__init__(irreps_in, irreps_out, correlation, **options)
        if self.method is not None:
            polynomial = cue.descriptors.symmetric_contraction(
                _irreps(self.irreps_in), _irreps(self.irreps_out), tuple(range(1, correlation + 1))
            ).polynomial
            self._couplings = _dense(polynomial)
            self.kernel = _Kernel(cuet.SegmentedPolynomial(polynomial, method=self.method))
            self.transpose = _Kernel(
                cuet.TransposeIrrepsLayout(_irreps(self.irreps_out), source=cue.ir_mul, target=cue.mul_ir)
            )
            self.register_buffer("projection", None, persistent=False)
            self.register_load_state_dict_post_hook(_project_again)
            self._project()

    def _project(self) -> None:
        """Solve for the model's couplings in cuEquivariance's basis: [model's weights, its weights]."""
        blocks, start = [], 0
        for contraction in self.contractions:
            components = slice(start, start + contraction.dim)
            forms = contraction.form_of([coupling[components] for coupling in self._couplings])
            basis = forms.unflatten(0, (contraction.correlation, -1)).sum(0)
            wanted = contraction.form.cpu().double()
            blocks.append(wanted @ torch.linalg.pinv(basis))
            assert torch.allclose(blocks[-1] @ basis, wanted, atol=1e-5), "couplings outside the basis"
            start += contraction.dim
        self.projection = torch.cat(blocks).to(self.contractions[0].form)

    def _apply(
        self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True
    ) -> CueqSymmetricContraction:
        super()._apply(fn, recurse)
        if self.method is not None and not self.projection.is_meta:
            self._project()
        return self

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Features x [N, C, D] and element one-hot y [N, Z] to [N, irreps_out.dim]."""
        if self.method is None or (self.method == "uniform_1d" and not x.is_cuda):
            return super().forward(x, y)
        weights = torch.cat(
            [weight for part in self.contractions for weight in (part.weights_max, *part.weights)], 1
        )
        weights = torch.einsum("zkc,kb->zbc", weights, self.projection)
        (out,) = self.kernel(
            [weights.flatten(1), x.transpose(1, 2).flatten(1)], input_indices={0: y.argmax(1)}
        )
        return self.transpose(out)


def _project_again(contraction: CueqSymmetricContraction, _: object) -> None:
    """Hook: a state dict brought other U matrices."""
    contraction._project()


def _dense(polynomial: cue.SegmentedPolynomial) -> list[torch.Tensor]:
    """The coupling tensors of a polynomial in (weights, x), per degree: [outputs, D ** degree, weights]."""
    weights, x = polynomial.inputs
    couplings = []
    for operation, product in polynomial.operations:
        degree = len(operation.buffers) - 2
        shape = (product.operands[-1].num_segments, *[x.num_segments] * degree, weights.num_segments)
        coupling = torch.zeros(shape, dtype=torch.float64)
        for path in product.paths:
            weight, *features, output = path.indices
            place = (output, *features, weight)
            coupling[place] += float(path.coefficients)
        couplings.append(coupling.flatten(1, -2))
    return couplings


CUEQ = Backend(
    linear=CueqLinear,
    tensor_product=CueqTensorProduct,
    fully_connected_tensor_product=CueqFullyConnectedTensorProduct,
    symmetric_contraction=CueqSymmetricContraction,
)
