"""URLs of PostgreSQL as Java programs have them, `jdbc:postgresql:…`, to what libpq reads. Pure."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote, unquote, urlencode

from changelog.contract.base.errors import ConfigurationError

PREFIX = "jdbc:postgresql:"
_HOST = "localhost"  # where Java's driver looks without one; libpq would take a socket

_PARAMETERS = {
    "user": "user",
    "password": "password",
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "sslpassword": "sslpassword",
    "sslNegotiation": "sslnegotiation",
    "ApplicationName": "application_name",
    "connectTimeout": "connect_timeout",
    "loginTimeout": "connect_timeout",
    "options": "options",
    "gssEncMode": "gssencmode",
    "channelBinding": "channel_binding",
    "requireAuth": "require_auth",
    "kerberosServerName": "krbsrvname",
    "service": "service",
}
_SERVERS = {
    "any": "any",
    "primary": "primary",
    "master": "primary",
    "secondary": "standby",
    "slave": "standby",
    "preferSecondary": "prefer-standby",
    "preferSlave": "prefer-standby",
    "preferPrimary": "any",
}
# How Java's driver sends statements and reads results, which other programs do their own way.
_OF_THE_DRIVER = """
    adaptiveFetch adaptiveFetchMaximum adaptiveFetchMinimum allowEncodingChanges
    assumeMinServerVersion autosave binaryTransfer binaryTransferDisable binaryTransferEnable
    cancelSignalTimeout characterEncoding cleanupSavepoints currentSchema
    databaseMetadataCacheFields databaseMetadataCacheFieldsMiB defaultRowFetchSize
    disableColumnSanitiser escapeSyntaxCallMode groupStartupParameters hideUnprivilegedObjects
    hostRecheckSeconds loadBalanceHosts localSocketAddress logServerErrorDetail
    logUnclosedConnections loggerFile loggerLevel maxResultBuffer maxSendBufferSize
    preferQueryMode preparedStatementCacheQueries preparedStatementCacheSizeMiB
    prepareThreshold protocolVersion quoteReturningIdentifiers readOnly readOnlyMode
    receiveBufferSize reWriteBatchedInserts replication sendBufferSize socketTimeout stringtype
    tcpKeepAlive tcpNoDelay unknownLength useUnicode
"""


def libpq_uri(text: str) -> str:
    """Return a connection string with a URL of Java's driver turned into libpq's.

    Parameters that only say how that driver works are left out; one that has no counterpart is
    refused. Another string is returned as it is.

    >>> libpq_uri("jdbc:postgresql://db:5433/shop?user=me&useUnicode=true&ssl=true")
    'postgresql://db:5433/shop?user=me&sslmode=verify-full'
    >>> libpq_uri("jdbc:postgresql:shop")
    'postgresql://localhost/shop'

    Raises ConfigurationError: it is none, or has a parameter that libpq does not know; values are
    not shown.
    """
    if not text.startswith(PREFIX):
        return text
    place, _, query = text[len(PREFIX) :].partition("?")
    if place.startswith("//"):
        hosts, _, database = place[2:].partition("/")
    else:
        hosts, database = "", place.removeprefix("/")
    if "@" in hosts or "/" in database or "#" in text:
        raise ConfigurationError(
            "the JDBC URL of PostgreSQL cannot be read",
            hint="jdbc:postgresql://host:port/database?user=…; or postgresql://user@host/database",
        )
    parameters = dict(_translated(parse_qsl(query, keep_blank_values=True)))
    tail = f"?{urlencode(parameters, quote_via=quote)}" if parameters else ""
    return f"postgresql://{hosts or _HOST}/{quote(unquote(database), safe='')}{tail}"


def _translated(parameters: list[tuple[str, str]]) -> list[tuple[str, str]]:
    translated = []
    names = {name for name, _ in parameters}
    for name, value in parameters:
        if name in _PARAMETERS:
            translated.append((_PARAMETERS[name], value))
        elif name == "ssl":
            # A driver of today checks certificate and host where nothing else is said.
            if value in {"true", ""} and "sslmode" not in names:
                translated.append(("sslmode", "verify-full"))
        elif name == "targetServerType" and value in _SERVERS:
            translated.append(("target_session_attrs", _SERVERS[value]))
        elif name not in _OF_THE_DRIVER.split():
            raise ConfigurationError(
                f'the JDBC URL has the parameter "{name}", which has no counterpart here',
                hint="leave it out; or write postgresql://user@host/database with libpq's own",
            )
    return translated
