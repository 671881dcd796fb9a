"""Ask a SuperLink over HTTPS whether it is there. Only the standard library is needed."""

import http.client
import ssl
from pathlib import Path


def check_health(address: str, authority: Path | None, seconds: float = 10.0) -> None:
    """Raise OSError unless a SuperLink answers at HOST:PORT: by TLS, if the authority's certificate is given.

    The connection checks the certificate and its host name, as every node does.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if authority is None:
        connection = http.client.HTTPConnection(host, int(port), timeout=seconds)
    else:
        context = ssl.create_default_context(cafile=str(authority))
        connection = http.client.HTTPSConnection(host, int(port), timeout=seconds, context=context)
    try:
        connection.request("GET", "/health")
        status = connection.getresponse().status
    except http.client.HTTPException as error:
        raise ConnectionError(f"it does not speak HTTP ({type(error).__name__})") from None
    finally:
        connection.close()
    if status != http.client.OK:
        raise ConnectionError(f"it answers with HTTP status {status}, which no SuperLink does")
