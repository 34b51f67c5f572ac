import java.io.DataInputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeStreamsGroupsOptions;
import org.apache.kafka.clients.admin.StreamsGroupDescription;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData;
import org.apache.kafka.common.message.StreamsGroupHeartbeatResponseData;
import org.apache.kafka.common.message.StreamsGroupTopologyDescriptionUpdateRequestData;
import org.apache.kafka.common.message.StreamsGroupTopologyDescriptionUpdateRequestData.TopologyDescription;
import org.apache.kafka.common.message.StreamsGroupTopologyDescriptionUpdateRequestData.TopologyDescriptionGlobalStore;
import org.apache.kafka.common.message.StreamsGroupTopologyDescriptionUpdateRequestData.TopologyDescriptionNode;
import org.apache.kafka.common.message.StreamsGroupTopologyDescriptionUpdateRequestData.TopologyDescriptionSubtopology;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.StreamsGroupHeartbeatRequest;
import org.apache.kafka.common.requests.StreamsGroupHeartbeatResponse;
import org.apache.kafka.common.requests.StreamsGroupTopologyDescriptionUpdateRequest;
import org.apache.kafka.common.requests.StreamsGroupTopologyDescriptionUpdateResponse;

/**
 * A member of a streams group that speaks through Kafka's own message classes: joins, sends the description of its
 * topology when it is asked for it, and prints what Kafka's Admin client says of the group.
 */
public class StreamsMember {
    private static final int HEARTBEATS_MAX = 100;
    private final DataInputStream in;
    private final OutputStream out;

    private StreamsMember(Socket socket) throws Exception {
        in = new DataInputStream(socket.getInputStream());
        out = socket.getOutputStream();
    }

    private AbstractResponse ask(AbstractRequest request) throws Exception {
        RequestHeader header = new RequestHeader(request.apiKey(), request.version(), "member", 7);
        ByteBuffer sent = request.serializeWithHeader(header);
        out.write(ByteBuffer.allocate(4).putInt(sent.remaining()).array());
        out.write(sent.array(), sent.arrayOffset() + sent.position(), sent.remaining());
        byte[] received = new byte[in.readInt()];
        in.readFully(received);
        return AbstractResponse.parseResponse(ByteBuffer.wrap(received), header);
    }

    private StreamsGroupHeartbeatResponseData beat(StreamsGroupHeartbeatRequestData data) throws Exception {
        AbstractRequest request = new StreamsGroupHeartbeatRequest.Builder(data).build((short) 1);
        return ((StreamsGroupHeartbeatResponse) ask(request)).data();
    }

    private static TopologyDescription description(String topic) {
        TopologyDescriptionNode source = new TopologyDescriptionNode()
            .setName("source").setNodeType((byte) 1).setSourceTopics(List.of(topic)).setSuccessors(List.of("count"));
        TopologyDescriptionNode count = new TopologyDescriptionNode()
            .setName("count").setNodeType((byte) 2).setStores(List.of("counts")).setSuccessors(List.of("sink"));
        TopologyDescriptionNode sink = new TopologyDescriptionNode()
            .setName("sink").setNodeType((byte) 3).setSinkTopic("totals");
        return new TopologyDescription()
            .setSubtopologies(List.of(
                new TopologyDescriptionSubtopology().setSubtopologyId("0").setNodes(List.of(source, count, sink))))
            .setGlobalStores(List.of(
                new TopologyDescriptionGlobalStore().setSource(source.duplicate()).setProcessor(count.duplicate())));
    }

    public static void main(String[] args) throws Exception {
        String address = args[0];
        String group = args[1];
        String topic = args[2];
        try (Socket socket = new Socket(address.split(":")[0], Integer.parseInt(address.split(":")[1]))) {
            StreamsMember member = new StreamsMember(socket);
            StreamsGroupHeartbeatResponseData answer = member.beat(new StreamsGroupHeartbeatRequestData()
                .setGroupId(group).setMemberId("m").setMemberEpoch(0).setRebalanceTimeoutMs(10_000).setProcessId("p")
                .setActiveTasks(List.of()).setStandbyTasks(List.of()).setWarmupTasks(List.of())
                .setTopology(new StreamsGroupHeartbeatRequestData.Topology().setEpoch(0).setSubtopologies(List.of(
                    new StreamsGroupHeartbeatRequestData.Subtopology()
                        .setSubtopologyId("0").setSourceTopics(List.of(topic))))));
            for (int each = 0; each < HEARTBEATS_MAX && !answer.topologyDescriptionRequired(); each++) {
                if (answer.errorCode() != 0) {
                    throw new IllegalStateException("heartbeat: " + answer);
                }
                answer = member.beat(new StreamsGroupHeartbeatRequestData()
                    .setGroupId(group).setMemberId("m").setMemberEpoch(answer.memberEpoch()).setTopology(null));
            }
            System.out.println("REQUIRED " + answer.topologyDescriptionRequired());
            System.out.println("LAG " + answer.acceptableRecoveryLag());
            var update = (StreamsGroupTopologyDescriptionUpdateResponse) member.ask(
                new StreamsGroupTopologyDescriptionUpdateRequest.Builder(
                    new StreamsGroupTopologyDescriptionUpdateRequestData()
                        .setGroupId(group).setMemberId("m").setTopologyEpoch(0)
                        .setTopologyDescription(description(topic))).build((short) 0));
            System.out.println("UPDATED " + update.data().errorCode());
        }
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
            for (boolean asks : new boolean[] {false, true}) {
                StreamsGroupDescription found = admin.describeStreamsGroups(
                    List.of(group), new DescribeStreamsGroupsOptions().includeTopologyDescription(asks))
                    .describedGroups().get(group).get();
                System.out.println("STATUS " + found.topologyDescriptionStatus());
                System.out.println("ASSIGNOR " + found.assignorName().orElse(""));
                System.out.println("DESCRIPTION " + found.topologyDescription().map(Object::toString).orElse(""));
            }
        }
    }
}
