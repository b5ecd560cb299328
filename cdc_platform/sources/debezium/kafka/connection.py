"""Connections to brokers by librdkafka, and the meaning of its errors."""

import logging
from typing import Any, Final

from cdc_platform.errors import AccessDenied, SettingError, SourceError, SourceUnreachable
from cdc_platform.model.base.libraries import optional_library
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput

LOGGER: Final = logging.getLogger(__name__)
MOVING: Final = frozenset(
    {
        *("UNKNOWN_LEADER_EPOCH", "FENCED_LEADER_EPOCH", "NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE"),
        *("OFFSET_NOT_AVAILABLE", "KAFKA_STORAGE_ERROR", "UNKNOWN_TOPIC_OR_PART"),
    }
)
"""Errors of partitions with a new leader, for which the client tries again."""
_DENIED: Final = frozenset(
    {
        *("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"),
        *("TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "_SSL"),
    }
)


class KafkaConnection:
    """Opens clients of the brokers of a setting, and keeps the last problem that they report.

    Args:
        settings: settings of the topics.
    """

    def __init__(self, settings: KafkaInput) -> None:
        self.settings = settings
        self._last_problem: tuple[str, str] | None = None

    def open(self, kind: str, properties: dict[str, object]) -> Any:
        """Return a client of librdkafka, an `AdminClient` or a `Consumer`.

        Raises:
            LibraryMissing: the client's library is not installed.
            SettingError: the library rejects a property.
        """
        library = optional_library("confluent_kafka", "kafka")
        from confluent_kafka.admin import AdminClient

        self._last_problem = None
        client_properties = {
            # The platform's errors report problems; librdkafka's log repeats them with each of its tries.
            "log_level": 2,
            **properties,
            **self.settings.client_properties(),
            "error_cb": self.remember,
        }
        try:
            client_type = {"AdminClient": AdminClient, "Consumer": library.Consumer}[kind]
            return client_type(client_properties, logger=LOGGER)
        except (library.KafkaException, TypeError, ValueError, AttributeError) as error:
            raise SettingError(
                "input.kafka.client",
                f"has properties that librdkafka rejects; some names differ from the Java client's: {error}",
            ) from error

    def remember(self, error: Any) -> None:
        """Keep a problem: while a broker is down, librdkafka keeps trying, and then says only *timeout*."""
        self._last_problem = error.name(), error.str()

    def forget(self) -> None:
        """Forget the last problem: another request begins."""
        self._last_problem = None

    def meaning(self, error: Exception) -> SourceError:
        """Return the platform's error for one of the client."""
        last_name, last_text = self._last_problem or ("", "")
        reason = "; ".join(text for text in (str(error), last_text) if text)
        servers = self.settings.bootstrap_servers
        if {name_of(error), last_name} & _DENIED:
            return AccessDenied(
                "The brokers deny access: check the login in `input.kafka.client`, and that it may describe "
                f"and read the topics. Brokers: {servers}: {reason}"
            )
        return SourceUnreachable(
            "The brokers do not answer: check `input.kafka.bootstrap_servers`, and that each broker can be "
            f"reached under the name that it advertises. Brokers: {servers}: {reason}"
        )


def name_of(error: Exception) -> str:
    """Return Kafka's name of an error; empty for other errors."""
    kafka_error: Any = error.args[0] if error.args else None
    return str(kafka_error.name()) if hasattr(kafka_error, "name") else ""
