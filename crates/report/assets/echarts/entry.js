// What the report's page uses of Apache ECharts, and nothing else. Packed into echarts.min.js.gz by:
//   npm install echarts@6.1.0 esbuild
//   npx esbuild entry.js --bundle --minify --format=iife --legal-comments=inline | gzip -9n > echarts.min.js.gz
import { BarChart, CustomChart, HeatmapChart, LineChart } from "echarts/charts";
import {
  AriaComponent, GridComponent, LegendPlainComponent, TitleComponent, TooltipComponent, VisualMapContinuousComponent,
} from "echarts/components";
import { init, use } from "echarts/core";
import { SVGRenderer } from "echarts/renderers";

use([
  BarChart, CustomChart, HeatmapChart, LineChart, AriaComponent, GridComponent, LegendPlainComponent, TitleComponent,
  TooltipComponent, VisualMapContinuousComponent, SVGRenderer,
]);
window.echarts = { init };
