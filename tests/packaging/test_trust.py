"""Java trusts what the machine trusts."""

import hashlib
import re
import ssl
import subprocess
from pathlib import Path

import pytest

from spark_jobs.lake.session.java import TRUST_STORE_PASSWORD, java_home, java_key_store, system_trust_store


def test_keytool_reads_every_certificate_back(tmp_path: Path) -> None:
    """Java's own tool opens the store, finds it intact and lists the same certificates."""
    keytool = java_home() / "bin" / "keytool"
    certificates = ssl.create_default_context().get_ca_certs(binary_form=True)[:20]
    if not keytool.exists() or not certificates:
        pytest.skip("no keytool or no certificates on this machine")
    store = tmp_path / "store.jks"
    store.write_bytes(java_key_store(certificates))
    command = [keytool, "-list", "-keystore", store, "-storetype", "JKS", "-storepass", TRUST_STORE_PASSWORD]
    listing = subprocess.run(command, capture_output=True, text=True, check=False)
    assert listing.returncode == 0, listing.stdout + listing.stderr
    found = {line.replace(":", "").lower() for line in re.findall(r"\(SHA-256\): ([0-9A-F:]{95})", listing.stdout)}
    assert found == {hashlib.sha256(certificate).hexdigest() for certificate in certificates}


def test_machine_without_certificates_leaves_java_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty store would trust nobody; None says: use what Java brings."""
    monkeypatch.setattr(ssl, "create_default_context", lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    assert system_trust_store() is None
