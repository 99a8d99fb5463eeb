"""Unpacks a package's source distribution from PyPI: `source.py NAME==VERSION FOLDER`.

pip would build what it downloads in this form, which takes the package's whole tool chain; only its tests are wanted.
"""

import hashlib
import html.parser
import io
import sys
import tarfile
import urllib.parse
import urllib.request


class Links(html.parser.HTMLParser):
    """The links of a package's page, by the names of files."""

    def __init__(self):
        super().__init__()
        self.found = {}

    def handle_starttag(self, tag, attributes):
        link = dict(attributes).get("href", "")
        self.found[urllib.parse.urlsplit(link).path.rpartition("/")[2]] = link


def fetch(address):
    with urllib.request.urlopen(address, timeout=60) as answer:
        return answer.read()


(name, version), folder = sys.argv[1].split("=="), sys.argv[2]
page = f"https://pypi.org/simple/{name}/"
links = Links()
links.feed(fetch(page).decode())
address, _, digest = urllib.parse.urljoin(page, links.found[f"{name}-{version}.tar.gz"]).partition("#sha256=")
archive = fetch(address)
if hashlib.sha256(archive).hexdigest() != digest:
    sys.exit(f"{address} is not what its digest says")
tarfile.open(fileobj=io.BytesIO(archive)).extractall(folder, filter="data")
