// A producer without Python: sends the lines of standard input to a set, 4,096 in a call.
//
//     protoc -I protos --java_out=build --grpc-java_out=build protos/veilset/v1/*.proto
//     javac -cp "$GRPC_JARS" -d build docs/examples/Producer.java build/veilset/v1/*.java
//     java -cp "build:$GRPC_JARS" Producer localhost:50051 customers signup-2026-12-01 < addresses.txt
//
// The service normalizes and hashes. Each call has an upload id of its own, so that it can be sent again until it is answered:
// the same arguments with the same lines add nothing twice.

import com.google.protobuf.ByteString;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import veilset.v1.Membership.AddBatchRequest;
import veilset.v1.Membership.Elements;
import veilset.v1.MembershipServiceGrpc;

public final class Producer {
    private static final int BATCH = 4096;
    private static final int ATTEMPTS = 30;

    public static void main(String[] arguments) throws IOException, InterruptedException {
        String set = arguments[1];
        String upload = arguments[2];
        ManagedChannel channel = ManagedChannelBuilder.forTarget(arguments[0]).usePlaintext().build();
        var service = MembershipServiceGrpc.newBlockingStub(channel);
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        long held = 0;
        try {
            for (int number = 1; ; number++) {
                var elements = Elements.newBuilder();
                String line;
                while (elements.getValuesCount() < BATCH && (line = lines.readLine()) != null) {
                    if (!line.isEmpty()) {
                        elements.addValues(ByteString.copyFromUtf8(line));
                    }
                }
                if (elements.getValuesCount() == 0) {
                    break;
                }
                var request = AddBatchRequest.newBuilder()
                        .setSetName(set)
                        .setUploadId(upload + "-" + number)
                        .setElements(elements)
                        .build();
                held += send(service, request);
            }
        } finally {
            channel.shutdown().awaitTermination(5, TimeUnit.SECONDS);
        }
        System.out.println(held + " elements held, duplicates included");
    }

    /** Sends a batch until the service holds it; only UNAVAILABLE is tried again. */
    private static long send(MembershipServiceGrpc.MembershipServiceBlockingStub service, AddBatchRequest request)
            throws InterruptedException {
        for (int attempt = 1; ; attempt++) {
            try {
                return service.withDeadlineAfter(30, TimeUnit.SECONDS).addBatch(request).getElements();
            } catch (StatusRuntimeException error) {
                if (error.getStatus().getCode() != Status.Code.UNAVAILABLE || attempt == ATTEMPTS) {
                    throw error;
                }
                Thread.sleep(1000);
            }
        }
    }
}
