"""A student in parts: each rank holds a slice of every decoder layer, and all of what is around the layers.

The layers are sharded by FSDP2, which gathers one at a time for a forward and a backward and scatters the summed
gradient. Embeddings, the last norm and the head stay whole on every rank: the chunked head reads its weight outside any
module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from learner.errors import JobError
from learner.model import Student
from learner.ranks import Ranks


def shard_layers(student: Student, ranks: Ranks) -> None:
    """Leave this rank its slice of every decoder layer. Raises JobError for a model that does not name its layers."""
    names = set(student.causal._no_split_modules or ())
    layers = [module for module in student.body.modules() if type(module).__name__ in names]
    if not layers:
        raise JobError("student_unsupported", f"{student.name!r} does not say what its layers are: use one process")
    for layer in layers:
        sharded = fully_shard(layer, mesh=ranks.mesh, reshard_after_forward=True)
        # A token's share is of the whole step's loss: gradients of ranks are added up, not averaged.
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)


def add_up_gradients(student: Student, ranks: Ranks) -> None:
    """Those of the parts that every rank has whole; FSDP sees to the layers'."""
    gradients = [p.grad for p in student.trainable() if p.grad is not None and not isinstance(p, DTensor)]
    ranks.add_up(gradients)


def clip_gradients(parameters: Sequence[nn.Parameter], max_norm: float) -> float:
    """Scale gradients to a norm of `max_norm` at most, over all ranks; returns the norm before."""
    norms = [
        torch.nn.utils.get_total_norm([p.grad for p in kind if p.grad is not None]) for kind in by_kind(parameters)
    ]
    whole = [norm.full_tensor() if isinstance(norm, DTensor) else norm for norm in norms]
    total = whole[0] if len(whole) == 1 else torch.stack(whole).norm()
    for kind in by_kind(parameters):
        torch.nn.utils.clip_grads_with_norm_(kind, max_norm, total)
    return float(total)


def by_kind(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Sharded parameters and whole ones: no kernel takes both at once."""
    kinds = [[p for p in parameters if isinstance(p, DTensor) is sharded] for sharded in (True, False)]
    return [kind for kind in kinds if kind]


def weights(student: Student, *, keep: bool = True) -> dict[str, Tensor]:
    """The whole student or adapter, by the names of its state. Every rank takes part; those with `keep` get it."""
    state: Mapping[str, Tensor] = student.model.state_dict()
    if student.is_adapter:
        trained = {name for name, parameter in student.model.named_parameters() if parameter.requires_grad}
        state = {name: tensor for name, tensor in state.items() if name in trained}
    return {name: whole for name, tensor in state.items() if (whole := gathered(tensor, keep=keep)) is not None}


def gathered(tensor: Tensor, *, keep: bool) -> Tensor | None:
    """A tensor of all ranks in one piece, in the memory of the CPU; one that is in one piece already is left alone."""
    if not isinstance(tensor, DTensor):
        return tensor if keep else None
    whole = tensor.full_tensor()
    return whole.cpu() if keep else None


def placed_like(whole: Tensor, parameter: nn.Parameter) -> Tensor:
    """This rank's part of a tensor that every rank has in one piece, where it is shaped like the parameter."""
    on_device = whole.to(parameter.device)
    if not isinstance(parameter, DTensor) or whole.shape != parameter.shape:
        return on_device
    return distribute_tensor(on_device, parameter.device_mesh, parameter.placements, src_data_rank=None)
