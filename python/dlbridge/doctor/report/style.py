"""The style of the HTML page: light and dark, a matrix on a desk and a list on a phone."""

STYLE = """
:root{--back:#fff;--text:#1b1f24;--soft:#57606a;--line:#d8dee4;--pass:#0a6b2d;--passb:#dcf5e3;
--warn:#7a4d00;--warnb:#fff1cc;--fail:#a40e26;--failb:#ffdfe2;--none:#57606a;--noneb:#f1f3f5;
--w0:#8c959f;--w1:#2f6fdb;--w2:#0a8f5b;--w3:#b35900}
@media(prefers-color-scheme:dark){:root{--back:#14171b;--text:#e6e9ed;--soft:#a0a9b4;
--line:#343b44;--pass:#7ee2a0;--passb:#12351f;--warn:#f5cf72;--warnb:#3d2f08;--fail:#ff9ca6;
--failb:#4d141b;--none:#a0a9b4;--noneb:#22272e;--w0:#6e7781;--w1:#6ea8ff;--w2:#3fc48b;
--w3:#f0a25c}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--text);font:15px/1.45 system-ui,sans-serif}
main{max-width:80rem;margin:0 auto;padding:1rem}
h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2rem}
code{overflow-wrap:anywhere;font-size:.9em}
p,li{overflow-wrap:anywhere}
.legend span{margin-right:1rem;white-space:nowrap}
.sign{display:inline-block;border-radius:4px;padding:0 .4em;font-variant-numeric:tabular-nums}
.pass{color:var(--pass);background:var(--passb)}.warn{color:var(--warn);background:var(--warnb)}
.fail{color:var(--fail);background:var(--failb);font-weight:bold}
.none{color:var(--none);background:var(--noneb)}
.totals{display:grid;grid-template-columns:repeat(auto-fill,minmax(11rem,1fr));gap:.5rem}
.totals>div{border:1px solid var(--line);border-radius:6px;padding:.4rem .6rem;
overflow-wrap:anywhere}
.matrix{border:1px solid var(--line);border-radius:6px}
.head,summary{display:grid;gap:2px;align-items:center;padding:2px .5rem;
grid-template-columns:12rem repeat(var(--columns),minmax(0,1fr))}
.head{position:sticky;top:0;background:var(--back);border-bottom:1px solid var(--line);
font-size:.75rem;color:var(--soft)}
.head span{overflow-wrap:anywhere;text-align:center}
details{border-bottom:1px solid var(--line)}details:last-child{border:0}
summary{cursor:pointer;list-style:none}
summary::-webkit-details-marker{display:none}
.title{overflow-wrap:anywhere}
.cell{text-align:center;min-height:1.5em;max-width:100%;overflow-wrap:anywhere}
.label{display:none}
.more{padding:0 1rem .5rem;font-size:.9rem}
.more ul{padding:0;margin:0;list-style:none}
.more li{margin:.2rem 0}
svg{width:100%;max-width:44rem;height:auto;font-size:10px}
svg text{fill:var(--soft)}svg .name{fill:var(--text);font-weight:bold;font-size:11px}
.w0{fill:var(--w0)}.w1{fill:var(--w1)}.w2{fill:var(--w2)}.w3{fill:var(--w3)}
@media(max-width:60rem){
.head{display:none}
summary{display:flex;flex-wrap:wrap;gap:4px;padding:.4rem .5rem}
.title{flex-basis:100%;font-weight:bold}
.label{display:inline;margin-right:.35em}
.cell{font-size:.8rem}
.cell:empty{display:none}}
"""
