"""A web shop in a page: the catalogue and the price of a basket, as JSON."""

import json
from http.server import BaseHTTPRequestHandler, HTTPServer

from pricing import total

CATALOGUE = {"tea": 450, "cup": 900, "kettle": 3900}


class Shop(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        names = [name for name in self.path.strip("/").split(",") if name in CATALOGUE]
        answer = {"basket": names, "total": total([CATALOGUE[name] for name in names])} if names else CATALOGUE
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", 8080), Shop).serve_forever()
