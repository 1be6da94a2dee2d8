"""The logging settings of the Java servers that use Log4j 2: plain lines on standard output."""

from __future__ import annotations

_LOG4J2 = """\
<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="warn">
  <Appenders>
    <Console name="out" target="SYSTEM_OUT">
      <PatternLayout pattern="%d{{ISO8601}} %-5p %c{{1}}: %m%n"/>
    </Console>
  </Appenders>
  <Loggers>
    <Root level="{level}"><AppenderRef ref="out"/></Root>
  </Loggers>
</Configuration>
"""


def log4j2_xml(level: str) -> str:
    """Return a configuration that logs from `level` upwards."""
    return _LOG4J2.format(level=level)
