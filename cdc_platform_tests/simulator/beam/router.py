"""A gRPC router: calls of one database go to the simulator, all others to Google's emulator.

Every Spanner client sends the database of a call in the header google-cloud-resource-prefix. Messages are passed on as bytes.
"""
import sys
from concurrent.futures import ThreadPoolExecutor
import grpc

OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0)]
same = lambda b: b
DROP = ("user-agent", "grpc-", ":", "te", "content-type", "accept-encoding")

class Router(grpc.GenericRpcHandler):
    def __init__(self, database, simulator, emulator, log=None):
        self.database, self.log = database, log
        self.sim = grpc.insecure_channel(simulator, options=OPTIONS)
        self.emu = grpc.insecure_channel(emulator, options=OPTIONS)
    def service(self, details):
        method = details.method
        header = {k: v for k, v in details.invocation_metadata}
        prefix = header.get("google-cloud-resource-prefix", "")
        params = header.get("x-goog-request-params", "")
        is_admin = ".admin." in method
        here = not is_admin and prefix == self.database
        if self.log: print(method.split("/")[-1], prefix, "SIM" if here else "EMU", file=self.log, flush=True)
        channel = self.sim if here else self.emu
        call = channel.unary_stream(method, request_serializer=same, response_deserializer=same)
        metadata = [(k, v) for k, v in details.invocation_metadata if not k.startswith(DROP)]
        def answer(request, context):
            got = call(request, metadata=metadata, timeout=context.time_remaining())
            context.add_callback(got.cancel)
            try:
                for message in got:
                    yield message
            except grpc.RpcError as e:
                context.set_trailing_metadata([(k, v) for k, v in (e.trailing_metadata() or ()) if not k.startswith(("grpc-status",))])
                if context.is_active():
                    context.abort(e.code(), e.details())
        return grpc.unary_stream_rpc_method_handler(answer, same, same)

def serve(database, simulator, emulator, log=None):
    server = grpc.server(ThreadPoolExecutor(512), options=OPTIONS)
    server.add_generic_rpc_handlers((Router(database, simulator, emulator, log),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, f"127.0.0.1:{port}"
