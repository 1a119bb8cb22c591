//! A way to the server that can be cut at a chosen moment.

use std::sync::Arc;
use std::sync::Mutex;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// When the connection is cut that a statement with the marked text comes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The server never sees the statement.
    Before,
    /// The server has done it, and the answer is lost.
    After,
    /// Nothing is closed, and nothing comes any more.
    Silence,
}

/// Carries what comes to `port` to a server, for as long as this lives.
pub struct Proxy {
    pub port: u16,
    armed: Arc<Mutex<Option<(Cut, String)>>>,
    _ways: JoinSet<()>,
}

impl Proxy {
    pub async fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let armed: Arc<Mutex<Option<(Cut, String)>>> = Arc::default();
        let mut ways = JoinSet::new();
        let cut = armed.clone();
        ways.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                open.spawn(carry(client, server, cut.clone()));
            }
        });
        Self { port, armed, _ways: ways }
    }

    /// Cuts at the next statement with this text.
    pub fn arm(&self, cut: Cut, text: &str) {
        *self.armed.lock().unwrap() = Some((cut, text.to_owned()));
    }
    /// Whether it has been cut as it was armed.
    pub fn was_cut(&self) -> bool {
        self.armed.lock().unwrap().is_none()
    }
}

async fn carry(mut client: TcpStream, mut server: TcpStream, armed: Arc<Mutex<Option<(Cut, String)>>>) {
    let (mut up, mut down) = (vec![0; 65536], vec![0; 65536]);
    let mut silent = false;
    loop {
        tokio::select! {
            n = client.read(&mut up) => {
                let Ok(n @ 1..) = n else { return };
                let sent = up.get(..n).unwrap();
                let marked = |(cut, text): &(Cut, String)| {
                    sent.windows(text.len()).any(|w| w == text.as_bytes()).then_some(*cut)
                };
                let cut = {
                    let mut armed = armed.lock().unwrap();
                    let cut = armed.as_ref().and_then(marked);
                    if cut.is_some() {
                        *armed = None;
                    }
                    cut
                };
                match cut {
                    Some(Cut::Before) => return,
                    Some(Cut::Silence) => std::future::pending().await,
                    _ => {}
                }
                silent |= cut == Some(Cut::After);
                if server.write_all(sent).await.is_err() {
                    return;
                }
            }
            n = server.read(&mut down) => {
                let Ok(n @ 1..) = n else { return };
                // The answer says that it is committed: nobody hears it.
                if silent || client.write_all(down.get(..n).unwrap()).await.is_err() {
                    return;
                }
            }
        }
    }
}
