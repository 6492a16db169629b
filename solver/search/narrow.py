"""Taking out what no assignment has that is cheap enough: fixing by reduced cost, as integer programs know it.

What the messages leave a value to pay above the cheapest one of its variable, every assignment with that value pays
above the bound. Where that is more than may be spent, the value is out, and sweeps over what is left are the faster.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from solver.search.arrays import State
from solver.search.bound import Dual, Messages
from solver.search.flat import FlatNetwork
from solver.search.kernels import DEAD, beyond
from solver.search.network import BoolArray, Domains
from solver.search.tree import Block


def narrowed(dual: Dual, domains: Domains, closed: State, spend: int, blocks: Sequence[Block] = ()) -> Domains:
    """Return the values that an assignment may have which costs little more than the bound.

    Parameters
    ----------
    dual : Dual
        The messages, of a network that is not rounded.
    domains : tuple of bool arrays
        Its values.
    closed : State
        What `dual.closed` gave.
    spend : int
        What it may cost above the bound, in units.
    blocks : sequence of Block, optional
        What the bound counts beside the messages: a value of a block has no part in the gain of that block.

    Returns
    -------
    tuple of bool arrays
        Not arc-consistent, and maybe empty.
    """
    afford = [spend] * len(domains)
    for block in blocks:
        for i in block.variables:
            afford[i] += block.gain
    return tuple(_affordable(dual, i, domain, closed, min(afford[i], DEAD - 1)) for i, domain in enumerate(domains))


def _affordable(dual: Dual, i: int, domain: BoolArray, closed: State, spend: int) -> BoolArray:
    network = dual.network
    cost, group = network.network.variables[i].cost, network.group[i]
    paid = beyond(network.flat, closed, i, dual.values)
    if not domain.any() or (len(paid) == len(domain) and (paid <= spend).all()):
        return domain
    alive = np.flatnonzero(domain)
    alone = paid[group[alive]]
    more = np.minimum(cost[alive] - cost[network.values[i][group[alive]]], DEAD >> network.shift) << network.shift
    found = np.zeros_like(domain)
    found[alive[(alone <= spend) & (more <= spend - alone)]] = True
    return found


def continued(network: FlatNetwork, messages: Messages) -> Dual:
    """Begin with the messages of a network on what is left of it.

    Parameters
    ----------
    network : FlatNetwork
        With some of its values; prices are not rounded.
    messages : Messages
        Of the network.

    Returns
    -------
    Dual
    """
    found, flat = Dual(network), network.flat
    for e, (rows, columns) in enumerate(messages):
        found.state.to_tail[flat.row_start[e] : flat.row_start[e + 1]] = rows[network.row_ids[e]]
        found.state.to_head[flat.column_start[e] : flat.column_start[e + 1]] = columns[network.column_ids[e]]
    return found
