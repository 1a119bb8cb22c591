//! A plugin that looks at everything WASI could give it, and says what it found.
use sutler_sdk::prelude::*;

pub struct Wasi;

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {}

#[derive(Serialize, JsonSchema)]
pub struct Outputs {
    environment: usize,
    arguments: usize,
    folders: usize,
    sockets: bool,
    seconds: u64,
    random: String,
}

#[cfg(target_arch = "wasm32")]
fn look() -> Outputs {
    use wasip2::cli::{environment, stdout};
    use wasip2::clocks::wall_clock;
    use wasip2::filesystem::preopens;
    use wasip2::random::random;
    use wasip2::sockets::{instance_network, network, tcp_create_socket};
    let out = stdout::get_stdout();
    let _ = out.blocking_write_and_flush(b"printed by the guest\n");
    // A socket may be made; the network is what it may not reach.
    let net = instance_network::instance_network();
    let address =
        network::IpSocketAddress::Ipv4(network::Ipv4SocketAddress { port: 9, address: (127, 0, 0, 1) });
    let sockets = tcp_create_socket::create_tcp_socket(network::IpAddressFamily::Ipv4)
        .is_ok_and(|s| s.start_connect(&net, address).is_ok());
    Outputs {
        environment: environment::get_environment().len(),
        arguments: environment::get_arguments().len(),
        folders: preopens::get_directories().len(),
        sockets,
        seconds: wall_clock::now().seconds,
        random: random::get_random_bytes(8).iter().map(|b| format!("{b:02x}")).collect(),
    }
}

#[cfg(not(target_arch = "wasm32"))]
fn look() -> Outputs {
    Outputs { environment: 0, arguments: 0, folders: 0, sockets: false, seconds: 0, random: String::new() }
}

impl Resource for Wasi {
    const PAIR: Pair = Pair::new(Kind::Tool, "wasi");
    const SUMMARY: &'static str = "What WASI gives";
    type Settings = Settings;
    type Outputs = Outputs;

    fn read(_: &Subject<Settings>) -> Result<Option<Actual<Outputs>>> {
        let found = look();
        Err(Error::new("looked", json!(found).to_string()))
    }

    fn write(_: &Subject<Settings>, _: &Settings) -> Result<Outputs> {
        Ok(look())
    }

    fn delete(_: &Subject<Settings>) -> Result<()> {
        Ok(())
    }
}

sutler_sdk::export!(Wasi);
