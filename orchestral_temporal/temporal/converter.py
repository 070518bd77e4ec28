"""Payloads and failures as they leave us: JSON any language reads, no traces (decisions 13 and 23, F097)."""

import dataclasses
from typing import Final

from temporalio.api.failure.v1 import Failure
from temporalio.client import Client
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import DataConverter, DefaultFailureConverter, PayloadConverter

from orchestral_temporal.protocol.errors import AgentRejectionCode

UNREADABLE_START: Final = "Failed decoding arguments"
"""The SDK's own words for a start argument that it cannot decode."""


class OrchestralFailureConverter(DefaultFailureConverter):
    """The default, without the paths and source lines of stack traces: those belong into the log."""

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        """Write an exception as a failure, and empty its traces down the chain."""
        super().to_failure(exception, payload_converter, failure)
        if isinstance(exception, RuntimeError) and str(exception) == UNREADABLE_START:
            failure.message = (
                'The start argument cannot be read: give exactly one JSON object, such as {"input": "task"}.'
            )
            failure.application_failure_info.type = AgentRejectionCode.INVALID_SPEC
            failure.ClearField("cause")
        link: Failure | None = failure
        while link is not None:
            link.stack_trace = ""
            link = link.cause if link.HasField("cause") else None


DATA_CONVERTER: Final = DataConverter(
    payload_converter_class=PydanticPayloadConverter,
    failure_converter_class=OrchestralFailureConverter,
)


def compose(given: DataConverter | None) -> DataConverter:
    """A user's converter with our payload and failure forms; codec and external storage stay theirs."""
    if given is None:
        return DATA_CONVERTER
    return dataclasses.replace(
        given,
        payload_converter_class=PydanticPayloadConverter,
        failure_converter_class=OrchestralFailureConverter,
    )


def converted(client: Client) -> Client:
    """The client itself if it speaks our payload and failure forms, else one like it that does, on its connection."""
    given, ours = client.data_converter, (PydanticPayloadConverter, OrchestralFailureConverter)
    if (given.payload_converter_class, given.failure_converter_class) == ours:
        return client
    config = client.config()
    config["data_converter"] = compose(given)
    return Client(**config)
