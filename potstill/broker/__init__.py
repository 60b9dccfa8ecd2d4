"""Everything that is stored in Redis or Valkey, and the only place that knows a key name.

`Broker` is one connection; `JobStore`, `TicketQueue` and `TrajectoryStream` are the three things kept there.
Only commands that Redis 7.0 and Valkey have; every change of more than one key is one Lua script, and every script
may safely run twice, since a client that lost the answer asks again.
"""

from potstill.broker.connection import Broker, BrokerError, BrokerUnavailableError

__all__ = ["Broker", "BrokerError", "BrokerUnavailableError"]
